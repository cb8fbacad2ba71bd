DROP TABLE IF EXISTS {{.Table}};
{{- if .Partitioned}}
DROP FUNCTION IF EXISTS {{.CreatePartitions}}(integer);
{{- end}}
