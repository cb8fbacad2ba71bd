INSERT INTO outbox VALUES ('0b6f1f0e-5d4c-5f43-8f0b-0d5a6a1f1f01', 'Order', 'o-1', 'OrderCreated', '{"a":1}', 't "1"', 7, 0, '2024-02-29 12:00:00.123');
INSERT INTO outbox VALUES ('0b6f1f0e-5d4c-5f43-8f0b-0d5a6a1f1f02', 'Order', 'o-2', 'OrderCreated', '', NULL, NULL, NULL, NULL);
INSERT INTO outbox VALUES ('0b6f1f0e-5d4c-5f43-8f0b-0d5a6a1f1f03', 'Customer', 'c-ä', 'CustomerCreated', 'ä', 'ä', -1, 3, '2024-02-29 12:00:00');
