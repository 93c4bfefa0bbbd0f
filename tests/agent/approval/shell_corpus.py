"""Seeded random shell code of harmless marker programs, in every construct that runs something."""

import random
from collections.abc import Callable

MARKERS = tuple(f"mark{number}" for number in range(8))


class ShellCorpus:
    """Makes shell code; the same seed makes the same code."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._names = 0

    def line(self) -> str:
        """Return code of one to three statements."""
        return self._one([";", "\n", " && ", " || "]).join(
            self._statement(3) for _ in range(self._random.randint(1, 3))
        )

    def _one(self, options: list[str]) -> str:
        return self._random.choice(options)

    def _new(self) -> str:
        self._names += 1
        return f"v{self._names}"

    def _statement(self, depth: int) -> str:
        if depth <= 0:
            return self._simple(0)
        makers: list[Callable[[int], str]] = [
            self._simple,
            self._simple,
            self._simple,
            self._pipeline,
            self._group,
            self._branch,
            self._loop,
            self._function,
            self._nested_shell,
            self._wrapper,
            self._document,
            self._variable,
            self._arithmetic,
        ]
        return self._random.choice(makers)(depth - 1)

    def _simple(self, depth: int) -> str:
        words = [self._one(list(MARKERS)), *(self._word(depth) for _ in range(self._random.randint(0, 3)))]
        if self._random.random() < 0.15:
            words[0] = self._disguised(words[0])
        text = " ".join(words)
        if self._random.random() < 0.15:
            text = f"{self._new()}={self._word(depth)} {text}"
        if self._random.random() < 0.15:
            text += self._one([" >out", " 2>&1", " </dev/null", " >>out 2>/dev/null", " &>out", " >|out"])
        return text

    def _disguised(self, name: str) -> str:
        head, tail = name[:2], name[2:]
        octal = "".join(f"\\{ord(letter):03o}" for letter in name)
        return self._one(
            [
                f'{head}"{tail}"',
                f"'{name}'",
                f"\\{name}",
                f"{head}''{tail}",
                f"$'{octal}'",
                f'"{name}"',
                f"{head}\\{tail}",
            ]
        )

    def _word(self, depth: int) -> str:
        plain = [
            "a",
            "b-c",
            "'single quoted; mark9'",
            '"double quoted"',
            "$'ansi\\tc'",
            "a\\ b",
            "{x,y}",
            "'}'",
            "#no",
            "x=y",
        ]
        plain += [
            "--option=1",
            "$HOME",
            "${HOME}",
            "~",
            "'$(mark9)'",
            '"\\$(mark9)"',
            "\\`mark9\\`",
            "{1..3}",
            "$((1+2))",
        ]
        if depth <= 0 or self._random.random() < 0.5:
            return self._one(plain)
        inner = self._statement(depth - 1)
        flat = inner.replace("\n", ";") if "<<" not in inner else "mark0 doc"
        name = self._new()
        return self._one(
            [
                f"$({inner}\n)",
                f'"$({inner}\n)"',
                f'"a $({inner}\n) b"',
                f"${{{name}:-$({inner}\n)}}",
                f'"${{{name}:-$({inner}\n)}}"',
                f"${{{name}:='}}'}}$({inner}\n)",
                f"$(( $({inner}\necho 1) ))",
                f"<({inner}\n)",
                f"${{{name}+x}}$({inner}\n)",
                f"x$({inner}\n)y",
                f"${{{name}-`{_escaped(flat)}`}}",
                f"`{_escaped(flat)}`",
                f'"`{_escaped(flat)}`"',
                f"${{{name}:+$({inner}\n)}}",
            ]
        )

    def _pipeline(self, depth: int) -> str:
        parts = [self._compact(depth) for _ in range(self._random.randint(2, 3))]
        return self._one(["", "", "! "]) + self._one([" | ", " |& "]).join(parts)

    def _compact(self, depth: int) -> str:
        inner = self._statement(depth)
        return inner if "\n" not in inner and "&" not in inner and ";" not in inner else f"{{ {inner}\n}}"

    def _group(self, depth: int) -> str:
        inner = self._statement(depth)
        return self._one(
            [f"({inner}\n)", f"{{ {inner}\n}}", f"({inner}\n) >out", f"{{ {inner}\n}} 2>&1", f"{{ {inner}\n}} & wait"]
        )

    def _branch(self, depth: int) -> str:
        test, first, second = self._compact(0), self._statement(depth), self._statement(depth)
        return self._one(
            [
                f"if {test}; then {first}\nelse {second}\nfi",
                f"if ! {test}; then {first}\nelif {test}; then {second}\nfi",
                f"case $HOME in x) {first}\n;; *) {second}\n;; esac",
                f'case "$({test})" in\n  (a|b) {first}\n;;\n  *) {second}\n;;\nesac',
                f"[[ -n $({test}) || -z x ]] || {self._compact(depth)}",
                f'[ "$({test})" = y ] || {self._compact(depth)}',
            ]
        )

    def _loop(self, depth: int) -> str:
        inner, name = self._statement(depth), self._new()
        return self._one(
            [
                f"for {name} in a b; do mark1 ${name}; {inner}\ndone",
                f'for {name} in "x y" z; do mark2 "${name}" ${name}; {inner}\ndone',
                f"for {name} in $({self._simple(0)}) c; do {inner}\nmark3 ${name}; done",
                f"for (({name}=0;{name}<2;{name}++)); do {inner}\ndone",
                f"while {inner}\nfalse; do mark4; done",
                f"until {self._compact(0)}; do {inner}\nbreak; done",
                f"printf 'one\\ntwo\\n' | while read -r {name}; do mark5 ${name}; {inner}\ndone",
            ]
        )

    def _function(self, depth: int) -> str:
        inner, name = self._statement(depth), self._new()
        return self._one(
            [
                f"{name}() {{ {inner}\n}}; {name}",
                f"function {name} {{ {inner}\n}}\n{name} a b",
                f'{name}() {{ mark6 "$1" "$@"; }}; {name} {self._word(0)} two',
                f"{name}() ( {inner}\n)\n{name}",
                f"trap {_quoted(self._simple(0))} EXIT; {inner}",
                f"coproc {{ {inner}\n}}; wait",
            ]
        )

    def _nested_shell(self, depth: int) -> str:
        inner = self._statement(depth)
        return self._one(
            [
                f"bash -c {_quoted(inner)}",
                f"bash -ec {_quoted(inner)} name arg",
                f"eval {_quoted(inner)}",
                f"source /dev/stdin <<< {_quoted(inner)}",
                f"bash <<< {_quoted(inner)}",
                f"sh -c {_quoted(self._simple(0))}",
                f"bash -c {_quoted('mark7 ' + chr(34) + '$1' + chr(34))} name {self._word(0)}",
                f"command bash -c {_quoted(inner)}",
                f"printf '%s' {_quoted(self._simple(0))} | bash",
            ]
        )

    def _wrapper(self, depth: int) -> str:
        simple = f"{self._one(list(MARKERS))} {self._word(depth)}"
        return self._one(
            [
                f"env {simple}",
                f"env -u X A=1 {simple}",
                f"env --unset X {simple}",
                f"timeout --kill-after 5 5 {simple}",
                f"timeout -k 5 5 {simple}",
                f"nice --adjustment 5 {simple}",
                f"nice -n 5 {simple}",
                f"time -p {simple}",
                f"nohup {simple}",
                f"command {simple}",
                f"exec {simple}",
                f"setsid -w {simple}",
                f"stdbuf -o L {simple}",
                f"printf 'one two' | xargs {simple}",
                f"printf 'one\\ntwo\\n' | xargs -I{{}} {simple} {{}}",
                f"printf one | xargs --max-args 1 {simple}",
                f"find . -maxdepth 0 -exec {simple} {{}} \\;",
                f"find . -maxdepth 0 -exec {simple} {{}} +",
                f"builtin eval {_quoted(simple)}",
                f"! {simple}",
                f"env --unset=X nice -5 timeout 5 {simple}",
                f"time {{ {simple}; }}",
            ]
        )

    def _document(self, depth: int) -> str:
        inner = self._statement(depth)
        flat = inner if "<<" not in inner else "mark0 doc"
        body = self._one(
            [f"text $({flat}\n) more", f"`{_escaped(flat)}`", f"${{none:-$({flat}\n)}}", "plain $HOME", "\\$(mark9)"]
        )
        code = self._simple(0)
        return self._one(
            [
                f"mark1 <<EOF\n{body}\nEOF\n",
                f"mark1 <<'EOF'\n{body}\nEOF\n",
                f"mark2 <<-END\n\t{body}\n\tEND\n",
                f"bash <<EOF\n{code}\nEOF\n",
                f"bash <<'EOF'\n{inner if '<<' not in inner else code}\nEOF\n",
                f'mark1 <<"E" | mark2 x\n{body}\nE\n',
                f"mark1 <<E && mark3\n{body}\nE\n",
                f"cat <<E >out\n{body}\nE\n{code}",
            ]
        )

    def _variable(self, depth: int) -> str:
        name, word = self._new(), self._word(depth)
        marker = self._one(list(MARKERS))
        return self._one(
            [
                f"{name}={word}; mark1 ${name}",
                f'{name}={word}; mark2 "${name}"',
                f"{name}={marker}; ${name} arg",
                f"{name}='{marker} one two'; ${name}",
                f"{name}=({marker} 'a b' c); \"${{{name}[@]}}\"",
                f"export {name}={word}; {marker} ${{{name}}}",
                f"{name}=mark; ${{{name}}}3 x",
                f"IFS=,; {name}={marker},x,y; ${name}",
                f"if {self._compact(0)}; then {name}=mark1; else {name}=mark2; fi; ${name} z",
                f"{name}=x{marker}; ${{{name}#x}} w",
                f"{name}='a[$({marker} hidden)]'; echo $(({name}))",
                f'set -- {marker} p q; "$@"',
                f"local_{name}={word} {marker}",
            ]
        )

    def _arithmetic(self, depth: int) -> str:
        inner = self._statement(depth)
        return self._one(
            [
                f"((x=1<<2))\n{inner}",
                f"echo $[1<<2]\n{inner}",
                f"echo $(( 1 << 2 ))\n{inner}",
                f"(( $({inner}\necho 1) ))",
                f"let y=1+2; {inner}",
                f"x=1 # comment; mark9\n{inner}",
                f"mark1 a\\\n b \\\n c\n{inner}",
                f"echo a; {inner} # mark9",
            ]
        )


def _quoted(code: str) -> str:
    return "'" + code.replace("'", "'\\''") + "'"


def _escaped(code: str) -> str:
    return code.replace("\\", "\\\\").replace("`", "\\`").replace("$", "\\$")
