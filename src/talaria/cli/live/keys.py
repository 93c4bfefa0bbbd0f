"""The keyboard help of the chat."""

KEYS = """\
**Keys**

- **Enter** sends; **Alt-Enter**, **Ctrl-J** or a backslash before Enter begins a new line
- **Esc** stops the running turn, closes a menu, refuses an approval
- **Ctrl-C** stops the running turn, else clears the line (↑ brings it back); on an empty line, twice leaves
- **Ctrl-D** leaves, on an empty line
- **Tab** completes commands, their arguments, and files after `@`
- **↑ ↓** earlier lines; **Ctrl-R** searches them: Enter, Tab or → takes the match, Ctrl-G cancels
- **Ctrl-O** shows the whole output or diff of the last tool call, and more of running ones
- **Ctrl-V** pastes a picture or text from the clipboard
- **Ctrl-X Ctrl-E** opens the line in your editor (`$VISUAL` or `$EDITOR`)
- **Ctrl-L** clears the screen; **Ctrl-Z** suspends

Type `/` for commands, `@` for files, `!` for a shell command.
"""
PLAIN_KEYS = """\
Keys: Enter sends, Ctrl-C stops the running turn, Ctrl-D leaves.
Type / for commands (/help lists them), @ before a file, ! before a shell command.
"""
