// Package connect converts the text of Postgres columns to the bytes that Kafka Connect's
// converters write, for the types and options that Debezium's Postgres connector and its outbox
// event router use. The bytes are those of Debezium 3.7 with the converters of Kafka 4.3 on
// Java 17; numbers are spelled as Java spells them (Double.toString, BigDecimal.toString).
//
// [NewField] makes a [Field] for a column; its methods convert the column's values. A [Struct] is
// the envelope that the router writes around several columns. An [Expansion] describes how a JSON
// document in a column becomes a value of its own.
//
// The package does no I/O. Each error concerns one value or one column, and no error contains a
// value.
//
// The texts are those of a session with DateStyle ISO, IntervalStyle postgres, TimeZone UTC,
// bytea_output hex, extra_float_digits 1 or more and, for money, lc_monetary C unless
// Type.MoneyPlaces is set. Another offset than UTC is understood; another style is an error.
//
// # Where Debezium does damage
//
// With Modes.Exact, conversion of these values fails. Without it they are written as the last
// column says; "refused" there means that conversion fails as well.
//
//	value                                   Debezium                          here, without Exact
//	NULL in a column with a default         the default                       null
//	numeric NaN, Infinity (precise)         null                              NaN, Infinity as text; in JSON refused
//	numeric(p,-s)                           2046 decimal places               scale 0
//	numeric without scale, StringConverter  Struct{scale=1,value=[B@1b2c3d}   the column's text
//	bytea, StringConverter                  java.nio.HeapByteBuffer[…]        the bytes
//	bit(n), StringConverter                 [B@1b2c3d                         base64
//	points and the like, StringConverter    Struct{x=…,wkb=[B@1b2c3d}         JSON, as SimpleHeaderConverter
//	envelope, StringConverter               Struct{payload=…}                 JSON
//	expandable document, StringConverter    Struct{a=1}                       the document's text
//	arrays of arrays                        addresses, or nulls               nested; with a schema refused
//	date[] BC or infinite                   another date                      as outside arrays
//	time[] with microseconds, 24:00         milliseconds, 00:00               as outside arrays
//	bit(n)[]                                null                              as outside arrays
//	NULL in arrays of enums, tsvector       null, or the task fails           null
//	name                                    null                              the text
//	timetz, seconds in its offset           null                              in UTC, as any other
//	timestamp beyond int64 in its unit      a wrapped number, or null         refused
//	connect mode, before 1970-01-02         the time of day alone             ISO 8601, as far as needed
//	connect mode, StringConverter           Thu Jan 01 10:00:00 UTC 1970      as SimpleHeaderConverter
//
// Infinite timestamps and dates become the numbers that Java's date classes compute from them,
// with Debezium and here.
//
// The same for JSON documents that are expanded:
//
//	document                                Debezium                          here, without Exact
//	an array                                the task fails                    the array
//	an empty array, schemas                 text without a schema             text with the column's schema
//	integer beyond int64                    the task fails                    its digits; with a schema the text
//	number beyond double                    "Infinity"                        its digits
//	members of several types in an array    the task fails                    as they are; with a schema the text
//	nested objects in an array that differ  members are lost                  all members, null where missing
//	null beside objects that differ         the task fails                    null
//	members renamed by avro                 null                              their values; clashes are refused
//
// Where the objects of an array have different members, Debezium's order of the members depends
// on memory addresses in its process. Here the members of the object with the most members come
// first.
package connect
