"""JSON of any size, value by value."""

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from paracosm.errors import InputError

CHUNK = 1 << 22  # bytes, unpacked
LONGEST_WORD = 9  # "-Infinity"
LONGEST = 1 << 30  # characters of one value: what is longer is no event, but a file out of joint

_BLANK = re.compile(r"[ \t\r\n]*")
_NEXT_MAPPING = re.compile(r"[ \t\r\n]*,[ \t\r\n]*(?=\{)")
_WORDS = ("true", "false", "null", "NaN", "Infinity", "-Infinity")


class Scanner:
    """The values of a file of any size, one by one, without holding all of it.

    It is unpacked and decoded in chunks. Each value is parsed from the text at hand by the JSON
    decoder of the standard library; one that is incomplete is tried again with more text. Numbers
    with a point are left as text, because a nanosecond of the year 2024 does not fit in a float.

    Raises:
        InputError: from every method, where the file cannot be unpacked, ends too early, or is no
            JSON; with the position in bytes, unpacked.
    """

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self.path = path
        self._file = file
        # Names of kernels are not always UTF-8.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        decoder: Any = json.JSONDecoder(parse_float=str, strict=False)
        self._scan = decoder.scan_once
        self._text = ""
        self._at = 0
        self._passed = 0  # bytes of the file, unpacked, up to the end of the text
        self._lines = 0  # that end before the text
        self._ended = False

    def peek(self) -> str:
        """Return the next character that is not blank; "" at the end."""
        begin = self._passed
        while True:
            self._at = _BLANK.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return self._text[self._at]
            if self._passed - begin > LONGEST:  # as unpacked from a small file of nothing else
                raise self.broken(f"more than {LONGEST:,} blanks")
            if not self._more():
                return ""

    def take(self, wanted: str, what: str) -> None:
        """Consume the character that must come next in `what`."""
        character = self.peek()
        if character != wanted:
            goes_on = "begins" if wanted in "[{" else "continues"
            raise self.broken(
                f"{what} {goes_on} with {character!r}, not {wanted!r}", bool(character)
            )
        self._at += 1

    def value(self) -> Any:
        """Return the next value, with numbers that have a point as text."""
        self.peek()
        while True:
            try:
                value, end = self._scan(self._text, self._at)
            except StopIteration as stop:
                reason, place = "no value", int(stop.value)
            except json.JSONDecodeError as error:
                reason, place = error.msg, error.pos
            except RecursionError:
                raise self.broken("nested too deeply") from None
            except ValueError:  # of Python, which converts no more digits
                raise self.broken("a number of thousands of digits") from None
            else:
                # A number that ends where the text ends may go on behind it.
                if end < len(self._text) or self._text[end - 1] in '}]"' or not self._more():
                    self._at = end
                    return value
                continue
            if reason.startswith("Invalid \\"):
                self._check_escape(place)
            # What is wrong before the last word does not become right with more of the text.
            open_text = reason.startswith(("Unterminated", "Invalid \\"))
            if (place + LONGEST_WORD < len(self._text) and not open_text) or not self._more():
                cut_off = self._ended and (open_text or self._ends_within_word(place))
                self._at = len(self._text) if cut_off else place
                raise self.broken(f"not JSON: {reason}", known=not cut_off)

    def values(self) -> Iterator[Any]:
        """Yield the values of the list that comes next."""
        self.take("[", "a list")
        scan, go_on = self._scan, _NEXT_MAPPING.match
        while True:
            if self.peek() == "]":
                self._at += 1
                return
            yield self.value()
            # The short way, as long as there is text enough.
            while after := go_on(self._text, self._at):
                try:
                    value, end = scan(self._text, after.end())
                except (StopIteration, ValueError, RecursionError):
                    break
                self._at = end
                yield value
            if self.peek() != "]":
                self.take(",", "a list")

    def keys(self) -> Iterator[str]:
        """Yield the keys of the mapping that comes next; after each, its value must be taken."""
        self.take("{", "a mapping")
        if self.peek() == "}":
            self._at += 1
            return
        while True:
            key = self.value()
            if not isinstance(key, str):
                raise self.broken("a mapping has a key that is not text")
            self.take(":", "a mapping")
            yield key
            if self.peek() == "}":
                self._at += 1
                return
            self.take(",", "a mapping")

    def _check_escape(self, place: int) -> None:
        """Raise InputError if the escape at or before a place is none, however it goes on."""
        at = self._text.rfind("\\", 0, place + 1)
        escape = re.compile(r"\\(?:u[0-9a-fA-F]{0,4}|.?)", re.DOTALL).match(self._text, at)
        if at < 0 or escape is None or escape.end() == len(self._text):
            return
        self._at = at
        raise self.broken(
            f"not JSON: a text has the escape {escape[0]}: a backslash, as in a path of Windows, "
            "is written twice"
        )

    def broken(self, why: str, known: bool = True) -> InputError:
        """Return the error at the current position; if it is unknown, the file is cut off."""
        rest = self._text[self._at :].replace("\ufffd", "?")  # a byte that is not UTF-8
        place = self._passed - len(rest.encode())
        line = 1 + self._lines + self._text.count("\n", 0, self._at)
        where = f"byte {place:,}" + (f" (line {line:,})" if line > 1 else "")
        if not known:
            return InputError(f"{self.path}: cut off at byte {place:,}: the trace is not complete")
        return InputError(f"{self.path}: {where}: {why}")

    def _ends_within_word(self, place: int) -> bool:
        rest = self._text[place:]
        return any(word.startswith(rest) for word in _WORDS)

    def _more(self) -> bool:
        """Read at least as much as is held already; return whether there was anything."""
        if self._ended:
            return False
        held = len(self._text) - self._at
        if held > LONGEST:
            raise self.broken(f"a value of more than {LONGEST:,} characters")
        try:
            raw = self._file.read(max(CHUNK, held))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            state = "cut off" if isinstance(error, EOFError) else "damaged"
            raise InputError(
                f"{self.path}: {state} after byte {self._passed:,} (unpacked): the gzip file does "
                "not unpack to its end"
            ) from None
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {error.strerror}") from None
        self._ended = not raw
        if not self._passed and raw.startswith(codecs.BOM_UTF8):
            raw, self._passed = raw[len(codecs.BOM_UTF8) :], len(codecs.BOM_UTF8)
        self._lines += self._text.count("\n", 0, self._at)
        held_back = len(self._decoder.getstate()[0])  # the begin of a character
        self._text = self._text[self._at :] + self._decoder.decode(raw, final=not raw)
        self._passed += held_back + len(raw) - len(self._decoder.getstate()[0])
        self._at = 0
        return bool(raw)
