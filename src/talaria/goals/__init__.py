"""Goals: tasks that continue over several turns until a judge finds them reached."""
