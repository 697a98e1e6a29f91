"""Bodies that are JSON, taken apart by Spark itself: one read gives the rows that fit the schema and those that do not.

Spark's own parser is used, and not the data source's `format=json`: here a body that does not fit must reach its place
byte for byte, with the place that it came from.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, StringType, StructType

from ariane.spark.pipeline.model import SinkKind, Source

PARSED = "_ariane_parsed"
_MISFIT = "_ariane_misfit"
USUAL_COLUMNS = ("queueId", "queueOffset", "msgId", "tags", "keys", "bornTimestamp", "storeTimestamp")
PLACE_COLUMNS = ("topic", "brokerName", "queueId", "queueOffset", "msgId", "tags", "keys", "storeTimestamp", "body")


def columns_to_read(source: Source, fields: list[str]) -> list[str]:
    """Of each message: what the view shows, the body, and with dead letters where it came from."""
    place = PLACE_COLUMNS if source.dead_letters is not None else ("body",)
    return list(dict.fromkeys((*message_columns(source, fields), *place)))


def message_columns(source: Source, fields: list[str]) -> list[str]:
    """A field of the body wins over the message's own column of that name, unless it was asked for."""
    if source.columns is not None:
        return [name for name in source.columns if name != "body"]
    return [name for name in USUAL_COLUMNS if name not in fields]


def parsed(raw: DataFrame, schema: StructType) -> DataFrame:
    """`raw` with the column PARSED."""
    wanted = StructType([*schema.fields]).add(_MISFIT, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _MISFIT}
    return raw.withColumn(PARSED, F.from_json(_text(), wanted, options))


def good_rows(rows: DataFrame, schema: StructType, source: Source) -> DataFrame:
    """Without a place for dead letters the first body that does not fit stops the query: none is ever left out."""
    fields = schema.fieldNames()
    if source.dead_letters is not None:
        rows = rows.where(~_is_bad())
    else:
        told = F.concat(F.lit(f"source {source.name}: "), _reason(), F.lit(", at queue offset "), _offset(rows))
        cure = F.lit(". Give the source `dead_letters: {parquet: PATH}` to keep such bodies apart")
        rows = rows.withColumn(PARSED, F.when(_is_bad(), F.raise_error(F.concat(told, cure))).otherwise(F.col(PARSED)))
    own = [F.col(name) for name in message_columns(source, fields) if name not in fields]
    return rows.select(*(F.col(PARSED).getField(name).alias(name) for name in fields), *own)


def bad_rows(rows: DataFrame, source: Source) -> DataFrame:
    """What does not fit, whole, for the place that the source names."""
    bad = rows.where(_is_bad()).select(*PLACE_COLUMNS, _reason().alias("reason"))
    assert source.dead_letters is not None
    return as_dead_messages(bad) if source.dead_letters.kind is SinkKind.TOPIC else bad


def as_dead_messages(bad: DataFrame) -> DataFrame:
    """The same body, tags and keys; where it came from is in the properties."""
    place = {"originTopic": "topic", "originBroker": "brokerName", "originQueueId": "queueId"}
    place |= {"originQueueOffset": "queueOffset", "originMsgId": "msgId", "deadReason": "reason"}
    pairs = [piece for name, column in place.items() for piece in (F.lit(name), F.col(column).cast("string"))]
    full = F.map_filter(F.create_map(*pairs), lambda _, value: value.isNotNull())
    return bad.select("body", "tags", "keys", full.alias("properties"))


def _text() -> Column:
    return F.col("body").cast("string")


def _offset(rows: DataFrame) -> Column:
    return F.col("queueOffset").cast("string") if "queueOffset" in rows.columns else F.lit("unknown")


def _is_bad() -> Column:
    """An empty body, and the JSON `null`, give no row at all."""
    return F.col(PARSED).isNull() | F.col(PARSED).getField(_MISFIT).isNotNull()


def _reason() -> Column:
    is_object = F.from_json(_text(), MapType(StringType(), StringType())).isNotNull()
    return (
        F.when(F.octet_length("body") == 0, F.lit("the body is empty"))
        .when(is_object, F.lit("a field of the body does not fit the schema"))
        .otherwise(F.lit("the body is no JSON object"))
    )
