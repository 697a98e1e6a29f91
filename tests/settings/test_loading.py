"""Loading settings: precedence of the sources, error messages, secrets, and properties that can be read back."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.errors import SettingsError
from ariane.settings import Key, LoadedSettings, Secret, describe, load, setting, to_properties


class Flush(StrEnum):
    SYNC = "SYNC_FLUSH"
    ASYNC = "ASYNC_FLUSH"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSettings:
    flush: Flush = setting(Flush.ASYNC, key="flushDiskType", doc="When an append is stored.")
    interval_s: float = setting(0.5, key=Key("flushInterval", per_unit=1000), minimum=0.01, maximum=60, doc="Pause.")
    buffer_bytes: int = setting(4096, key=Key("bufferSize", zero_is_default=True), minimum=512, doc="Buffer.")
    password: Secret | None = setting(None, key="diskPassword", doc="Opens the disk.")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    root: Path | None = setting(None, key="storePathRootDir", doc="Directory of every file.")
    segment_bytes: int = setting(1024, key=("mappedFileSize", "mapedFileSize"), minimum=1, maximum=2**31, doc="Size.")
    warm: bool = setting(False, key="warmMappedFile", doc="Touch pages first.", reloadable=True)
    label: str = setting("plain", doc="A name with no key in RocketMQ.")
    disk: DiskSettings = field(default_factory=DiskSettings)


UNSUPPORTED = {"haListenPort": "there is no second port", "diskRatio": "the disk is watched by itself"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files are named relative to this directory, so that messages can be compared whole."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load_store(
    text: str | None = None,
    name: str = "broker.conf",
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> LoadedSettings[StoreSettings]:
    file = None
    if text is not None:
        file = Path(name)
        file.write_text(text, encoding="utf-8")
    return load(
        StoreSettings, section="broker", file=file, environ=environ or {}, flags=flags or {}, unsupported=UNSUPPORTED
    )


def error_of(*args: object, **named: object) -> str:
    with pytest.raises(SettingsError) as caught:
        load_store(*args, **named)  # type: ignore[arg-type]
    return str(caught.value)


def test_with_no_source_every_setting_has_its_default() -> None:
    loaded = load_store()
    assert loaded.settings == StoreSettings()
    assert set(loaded.origins.values()) == {"default"}
    assert "disk.interval_s" in loaded.origins
    assert loaded.warnings == ()


def test_flags_win_over_variables_over_the_file_over_defaults(here: Path) -> None:
    loaded = load_store(
        "[broker]\nsegment_bytes = 1\nlabel = 'file'\nwarm = true\n",
        "a.toml",
        environ={"ARIANE_BROKER__SEGMENT_BYTES": "2", "ARIANE_BROKER__LABEL": "variable"},
        flags={"segment_bytes": 3, "root": None},
    )
    assert loaded.settings == StoreSettings(segment_bytes=3, label="variable", warm=True)
    assert loaded.origins["segment_bytes"] == "flag"
    assert loaded.origins["label"] == "ARIANE_BROKER__LABEL"
    assert loaded.origins["warm"] == "a.toml:4"
    assert loaded.origins["root"] == "default"


def test_groups_are_tables_and_double_underscores(here: Path) -> None:
    text = "[broker.disk]\nflush = 'sync_flush'\n[client]\nanything = 1\n"
    loaded = load_store(text, "a.toml", environ={"ARIANE_BROKER__DISK__INTERVAL_S": "2"})
    assert loaded.settings.disk == DiskSettings(flush=Flush.SYNC, interval_s=2.0)


def test_a_properties_file_is_read_through_rocketmq_keys(here: Path) -> None:
    loaded = load_store("storePathRootDir=/data\nflushDiskType = SYNC_FLUSH\nwarmMappedFile:true\nmapedFileSize=7\n")
    assert loaded.settings == StoreSettings(
        root=Path("/data"), warm=True, segment_bytes=7, disk=DiskSettings(flush=Flush.SYNC)
    )
    assert loaded.origins["disk.flush"] == "broker.conf:2"


def test_of_two_equal_keys_the_last_wins(here: Path) -> None:
    assert load_store("mappedFileSize=1\nmappedFileSize=2").settings.segment_bytes == 2


def test_a_key_in_milliseconds_becomes_seconds_and_back(here: Path) -> None:
    settings = load_store("flushInterval=1500").settings
    assert settings.disk.interval_s == 1.5
    assert to_properties(settings)["flushInterval"] == "1500"


def test_the_range_of_a_key_is_reported_in_its_own_unit(here: Path) -> None:
    message = error_of("flushInterval=1")
    assert message == "broker.conf:1: flushInterval = '1': expected a number from 10 to 60000"


def test_zero_means_the_default_where_rocketmq_says_so(here: Path) -> None:
    assert load_store("bufferSize=0").settings.disk.buffer_bytes == 4096
    assert "expected a whole number of at least 512" in error_of("bufferSize=1")
    assert "expected a whole number of at least 512" in error_of("[broker.disk]\nbuffer_bytes=0", "a.toml")


def test_an_unsupported_key_is_a_warning_with_its_reason(here: Path) -> None:
    loaded = load_store("# ports\nhaListenPort=10912")
    assert loaded.warnings == ("broker.conf:2: haListenPort is not used: there is no second port",)


def test_an_unknown_key_names_the_nearest_one(here: Path) -> None:
    message = error_of("\nmappedfilesiz=1")
    assert message == "broker.conf:2: unknown key 'mappedfilesiz', did you mean 'mappedFileSize'?"
    assert "did you mean 'haListenPort'?" in error_of("halistenport=1")


def test_the_name_of_a_setting_with_a_key_is_not_taken_in_a_properties_file_but_suggests_the_key(here: Path) -> None:
    assert "did you mean 'mappedFileSize'?" in error_of("segment_bytes=1")


def test_a_setting_that_rocketmq_does_not_have_goes_by_its_own_name_in_a_properties_file(here: Path) -> None:
    loaded = load_store("label=x")
    assert loaded.settings.label == "x"
    assert loaded.origins["label"] == "broker.conf:1"
    assert "did you mean 'label'?" in error_of("lable=x")


def test_an_unknown_toml_key_names_the_nearest_one(here: Path) -> None:
    message = error_of("[broker]\nwarm = true\nsegmentbytes = 1", "a.toml")
    assert message == "a.toml:3: unknown key 'segmentbytes', did you mean 'segment_bytes'?"
    assert "did you mean 'disk.interval_s'?" in error_of("[broker]\ninterval_s = 1", "a.toml")
    assert "did you mean 'disk.flush'?" in error_of("[broker]\nflushDiskType = 'x'", "a.toml")


def test_an_unknown_table_names_the_nearest_one(here: Path) -> None:
    assert error_of("[brokre]\na = 1\nb = 2", "a.toml") == "a.toml: unknown table 'brokre', did you mean [broker]?"
    assert "unknown table 'brokr'" in error_of("[brokr]", "a.toml")
    assert "unknown key 'disc', did you mean 'disk'?" in error_of("[broker.disc]", "a.toml")


def test_a_setting_outside_its_table_is_an_error_that_names_the_table(here: Path) -> None:
    assert "'warm' is outside every table; put it under [broker]" in error_of("warm = true", "a.toml")
    assert "'disk' is a table" in error_of("[broker]\ndisk = 1", "a.toml")
    assert "'broker' is a table" in error_of("broker = 1", "a.toml")


def test_a_key_that_resembles_nothing_points_to_the_documentation(here: Path) -> None:
    assert "unknown key 'zzz', docs/settings.md lists all of them" in error_of("zzz=1")


def test_an_unknown_variable_names_the_nearest_one() -> None:
    message = error_of(
        environ={"ARIANE_BROKER__SEGMENT_BYTE": "1", "ARIANE_DEBUG": "1", "ARIANE_CLIENT__X": "1", "HOME": "/"}
    )
    assert message == "unknown variable 'ARIANE_BROKER__SEGMENT_BYTE', did you mean ARIANE_BROKER__SEGMENT_BYTES?"


def test_a_variable_of_an_unknown_section_names_the_nearest_one() -> None:
    message = error_of(environ={"ARIANE_BROKRE__WARM": "true"})
    assert message == "variable ARIANE_BROKRE__WARM: unknown section 'BROKRE', did you mean ARIANE_BROKER__...?"


def test_a_bad_value_names_key_value_and_what_is_expected(here: Path) -> None:
    assert error_of("mappedFileSize=big") == (
        "broker.conf:1: mappedFileSize = 'big': expected a whole number from 1 to 2147483648"
    )
    assert error_of("[broker]\nsegment_bytes = '1'", "a.toml") == (
        "a.toml:2: segment_bytes = '1': expected a whole number from 1 to 2147483648"
    )
    assert error_of(environ={"ARIANE_BROKER__WARM": "yes"}) == "ARIANE_BROKER__WARM = 'yes': expected true or false"
    assert error_of(flags={"segment_bytes": 0}).startswith("flag segment_bytes = 0: expected")


def test_all_problems_are_in_one_error(here: Path) -> None:
    message = error_of("warmMappedFile=2\nnope=1\n", environ={"ARIANE_BROKER__WARM": "3"})
    assert [line[:17] for line in message.splitlines()[1:]] == [
        "  broker.conf:1: ",
        "  broker.conf:2: ",
        "  ARIANE_BROKER__",
    ]


def test_a_file_that_is_something_else_gives_a_short_list_of_problems(here: Path) -> None:
    message = error_of("\n".join(f"word{number} x" for number in range(50)))
    assert len(message.splitlines()) == 12
    assert message.endswith("and 40 more")


def test_a_value_with_a_control_character_is_refused(here: Path) -> None:
    assert "must not contain control characters" in error_of("storePathRootDir=/data\\nlistenPort=1")
    assert "must not contain control characters" in error_of('[broker]\nlabel = "a\\nb"', "a.toml")
    assert "must not contain control characters" in error_of(environ={"ARIANE_BROKER__LABEL": "a\x1bb"})


def test_a_secret_is_in_no_dump_no_repr_and_no_error(here: Path) -> None:
    settings = load_store("diskPassword=hunter2").settings
    assert settings.disk.password == Secret("hunter2")
    assert "hunter2" not in repr(settings) + str(to_properties(settings)) + str(asdict(settings))
    message = error_of(environ={"ARIANE_BROKER__DISK__PASSWORD": "hunter2\n"})
    assert "(secret)" in message
    assert "hunter2" not in message


def test_to_properties_has_first_keys_only_and_no_unset_value() -> None:
    assert to_properties(StoreSettings()) == {
        "mappedFileSize": "1024",
        "warmMappedFile": "false",
        "flushDiskType": "ASYNC_FLUSH",
        "flushInterval": "500",
        "bufferSize": "4096",
    }


def test_a_missing_file_a_directory_and_bytes_that_are_not_text_are_settings_errors(here: Path) -> None:
    (here / "folder").mkdir()
    (here / "latin.conf").write_bytes(b"a=\xe9")
    (here / "huge.conf").write_bytes(b"#" * (1 << 20) + b"#")
    for name, message in {
        "none.conf": "none.conf: cannot read this settings file: No such file or directory",
        "folder": "folder: cannot read this settings file: Is a directory",
        "latin.conf": "latin.conf: byte 2 is not UTF-8; save the file as UTF-8",
        "huge.conf": "huge.conf: a settings file may have at most 1048576 bytes; is this the right file?",
    }.items():
        with pytest.raises(SettingsError) as caught:
            load(StoreSettings, section="broker", file=Path(name), environ={}, flags={}, unsupported={})
        assert str(caught.value) == message


def test_broken_syntax_names_file_and_line(here: Path) -> None:
    assert error_of("\na=\\u1").startswith("broker.conf: line 2: ")
    assert error_of("[broker", "a.toml").startswith("a.toml: this is not TOML: ")


def test_a_byte_order_mark_is_no_part_of_the_first_key(here: Path) -> None:
    assert load_store("\ufeffmappedFileSize=5").settings.segment_bytes == 5


def test_declarations_can_be_listed() -> None:
    specs = {spec.name: spec for spec in describe(StoreSettings)}
    assert list(specs)[:5] == ["root", "segment_bytes", "warm", "label", "disk.flush"]
    assert specs["warm"].reloadable
    assert specs["disk.password"].secret
    assert specs["segment_bytes"].keys == (Key("mappedFileSize"), Key("mapedFileSize"))
    assert specs["disk.flush"].default is Flush.ASYNC
    assert specs["disk.flush"].variable("broker") == "ARIANE_BROKER__DISK__FLUSH"


@given(
    st.builds(
        StoreSettings,
        segment_bytes=st.integers(1, 2**31),
        warm=st.booleans(),
        disk=st.builds(
            DiskSettings,
            flush=st.sampled_from(Flush),
            interval_s=st.integers(10, 60_000).map(lambda ms: ms / 1000),
            buffer_bytes=st.integers(512, 2**40),
        ),
    )
)
def test_properties_can_be_loaded_again(settings: StoreSettings) -> None:
    message = to_properties(settings)
    assert message["flushInterval"].isdigit()  # RocketMQ's tools read milliseconds as a whole number
    with TemporaryDirectory() as directory:
        file = Path(directory, "broker.conf")
        file.write_text("".join(f"{key}={text}\n" for key, text in message.items()))
        loaded = load(StoreSettings, section="broker", file=file, environ={}, flags={}, unsupported={})
    assert loaded.settings == settings


@pytest.mark.parametrize(("mode", "warns"), [(0o600, False), (0o400, False), (0o640, True), (0o644, True)])
@pytest.mark.parametrize(("key", "is_secret"), [("diskPassword", True), ("bufferSize", False)])
def test_a_file_with_a_secret_that_others_can_read_is_reported(
    tmp_path: Path, mode: int, warns: bool, key: str, is_secret: bool
) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(f"{key}=4096\n")
    file.chmod(mode)
    loaded = load(DiskSettings, section="broker", file=file, environ={}, flags={}, unsupported={})
    assert (loaded.file_warning is not None) == (warns and is_secret)
    assert "4096" not in (loaded.file_warning or "")
