SELECT pg_logical_emit_message(true, 'outbox', '{"id":"0b6f1f0e-5d4c-5f43-8f0b-0d5a6a1f1b01","aggregatetype":"Order","aggregateid":"o-1","type":"OrderCreated","tenant":"t-1","payload":{"total":9.5}}');
SELECT pg_logical_emit_message(true, 'outbox', '{"id":"0b6f1f0e-5d4c-5f43-8f0b-0d5a6a1f1b02","aggregatetype":"Order","aggregateid":"o-1","type":"OrderPaid","tenant":null,"payload":{"total":9.5,"note":null}}');
SELECT pg_logical_emit_message(true, 'outbox', '{"id":"0b6f1f0e-5d4c-5f43-8f0b-0d5a6a1f1b03","aggregatetype":"Order","aggregateid":"o-2","type":null,"tenant":null,"payload":"text"}');
SELECT pg_logical_emit_message(true, 'outbox', '{"id":"0b6f1f0e-5d4c-5f43-8f0b-0d5a6a1f1b04","aggregatetype":"Order","aggregateid":"o-2","type":"OrderClosed","tenant":"t-2","payload":null}');
SELECT pg_logical_emit_message(true, 'outbox', '{"id":"0b6f1f0e-5d4c-5f43-8f0b-0d5a6a1f1b05","aggregatetype":"Order","aggregateid":"o-3","type":null,"tenant":null,"payload":null}');
