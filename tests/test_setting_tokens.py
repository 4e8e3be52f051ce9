"""Files that hold a token."""

from pathlib import Path

import pytest

from proxy_addon.setting_tokens import read_token
from proxy_addon.settings import SettingError, Settings

TOKEN = "Zm9vYmFyYmF6cXV4+/=="


def token_file(folder: Path, content: bytes, mode: int = 0o600) -> Path:
    path = folder / "token"
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440])
def test_a_token_is_the_one_word_in_a_file_that_others_cannot_read(tmp_path: Path, mode: int) -> None:
    path = token_file(tmp_path, f" {TOKEN}\n".encode(), mode)
    assert Settings(admin_token_file=str(path)).admin_token_file == str(path)
    assert read_token(str(path)) == TOKEN


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (TOKEN.encode(), 0o644, "must not be open to others, and is 0644"),
        (TOKEN.encode(), 0o604, "take it away from them with `chmod 600 "),
        (TOKEN.encode(), 0o660, "must not be open to others, and is 0660"),
        (b"", 0o600, "is empty"),
        (b"\n \n", 0o600, "make it with `(umask 077; head -c 32 /dev/urandom | base64 > FILE)`"),
        (b"0123456789abcde\n", 0o600, "must hold a token of at least 16 characters"),
        (b"0123456789 abcdef", 0o600, "must hold one word of letters, digits and -._~+/="),
        (b"0123456789\nabcdef", 0o600, "must hold one word"),
        ("0123456789abcdefä".encode(), 0o600, "must hold one word"),
        (b"\xff" * 20, 0o600, "must be a text file in UTF-8"),
    ],
)
def test_a_file_that_will_not_do_is_refused_with_the_remedy_and_without_its_content(
    tmp_path: Path, content: bytes, mode: int, said: str
) -> None:
    path = token_file(tmp_path, content, mode)
    with pytest.raises(SettingError) as caught:
        Settings(admin_token_file=str(path))
    message = str(caught.value)
    assert message.startswith("admin_token_file ")
    assert said in message
    assert "0123456789" not in message
    assert TOKEN not in message


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="must be a file that exists"):
        Settings(admin_token_file=str(tmp_path / "none"))
