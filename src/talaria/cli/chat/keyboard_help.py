"""Keyboard help of the chat."""

KEYS = """\
**Keys**

- **Enter** sends; **Alt-Enter**, **Ctrl-J** or a backslash before Enter starts a new line
- **Esc** stops the running turn, closes a menu, refuses an approval
- **Ctrl-C** stops the running turn or clears the line (↑ restores it); pressed twice on an empty line, it leaves
- **Ctrl-D** leaves, on an empty line
- **Tab** completes commands, their arguments, and files after `@`
- **↑ ↓** recall earlier lines; **Ctrl-R** searches them: Enter, Tab or → accepts the match, Ctrl-G cancels
- **Ctrl-O** shows the full output or diff of the last tool call, and more of running ones
- **Ctrl-V** pastes an image or text from the clipboard
- **Ctrl-X Ctrl-E** opens the line in your editor (`$VISUAL` or `$EDITOR`)
- **Ctrl-L** clears the screen; **Ctrl-Z** suspends

Type `/` for commands, `@` for files, `!` for a shell command.
"""
PLAIN_KEYS = """\
Keys: Enter sends, Ctrl-C stops the running turn, Ctrl-D leaves.
Type / for commands (/help lists them), @ before a file, ! before a shell command.
"""
