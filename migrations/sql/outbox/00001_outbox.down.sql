DROP TABLE IF EXISTS {{Table}};{{if partitioned}}
DROP FUNCTION IF EXISTS {{CreatePartitions}}(integer);{{end}}
