"""The load program in Java is run by `make bench` only; here, that both sides of its protocol have the same fields."""

import re

import pytest

from bench.java.program import SOURCES, JavaKind, JavaPlan, ResultLine
from bench.scenarios.catalogue import all_scenarios


def public_fields(class_name: str) -> set[str]:
    return set(re.findall(r"^    public (?:final )?\w+ (\w+)(?: = .*)?;$", source(class_name), re.MULTILINE))


def source(class_name: str) -> str:
    (path,) = (path for path in SOURCES if path.stem == class_name)
    return path.read_text()


@pytest.mark.parametrize(("ours", "theirs"), [(JavaPlan, "LoadPlan"), (ResultLine, "LoadResult")])
def test_both_sides_have_the_same_fields(ours: type[JavaPlan | ResultLine], theirs: str) -> None:
    assert set(ours.__struct_encode_fields__) == public_fields(theirs)


def test_the_program_knows_every_kind_of_load() -> None:
    assert set(re.findall(r'case "(\w+)"', source("LoadProgram"))) == set(JavaKind)


def test_every_scenario_of_the_java_client_is_in_the_catalogue() -> None:
    names = {scenario.name for scenario in all_scenarios() if scenario.name.startswith("java-")}
    assert names == {"java-sends", "java-sends-sync", "java-batches", "java-transactions", "java-consumer"}
