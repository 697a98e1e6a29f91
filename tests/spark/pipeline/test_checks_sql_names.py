"""The views that an SQL text reads, found without Spark."""

import pytest

from ariane.spark.pipeline.checks import views_read


@pytest.mark.parametrize(
    ("sql", "views"),
    [
        ("select * from a", ["a"]),
        ("SELECT * FROM a, b AS x, `the c` WHERE a.n IN (SELECT n FROM d)", ["a", "b", "the c", "d"]),
        ("select * from a join b on a.x = b.x left join c using (x, y)", ["a", "b", "c"]),
        ("select * from (a join b on a.x = b.x)", ["a", "b"]),
        ("with w as (select 1 from a), v(x, y) as (select 1, 2 from w) select * from v join b", ["a", "b"]),
        ("select extract(day from at), trim(both 'x' from name), substring(name from 2) from a", ["a"]),
        ("select * from a where x is not distinct from y and z is distinct from y", ["a"]),
        ("select 1 from a union all select 2 from b except (select 3 from c)", ["a", "b", "c"]),
        ("select * from range(10), db.t, parquet.`lake/x`, a", ["a"]),
        ("select * from a lateral view explode(keys) t as key", ["a"]),
        ("select * from a, lateral (select * from b)", ["a", "b"]),
        ("select * from values (1, 2), (3, 4) as t(x, y)", []),
        ("select 'from b', \"from c\" -- from d\n from a /* from e */", ["a"]),
        ("select count(*) over (partition by x order by y) from a group by x, y order by x, y", ["a"]),
        ("from a select *", ["a"]),
        ("select exists (select 1 from b where b.n = a.n) from a", ["b", "a"]),
        ("select * from a pivot (sum(n) for tag in ('x', 'y'))", ["a"]),
        ("select * from", []),
        (")) from a ))", ["a"]),
    ],
)
def test_the_views_that_a_query_reads_are_found(sql: str, views: list[str]) -> None:
    assert [read.view for read in views_read(sql)] == views


def test_a_reference_has_its_position() -> None:
    sql = "select *\nfrom nowhere"
    (found,) = views_read(sql)
    assert sql[found.position :] == "nowhere"
