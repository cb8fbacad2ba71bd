INSERT INTO outbox VALUES ('0b6f1f0e-5d4c-5f43-8f0b-0d5a6a1f1201', 'Order', 'o-1', 'OrderCreated', '{"a": 1}');
INSERT INTO outbox VALUES ('0b6f1f0e-5d4c-5f43-8f0b-0d5a6a1f1202', 'Order', 'o-2', 'OrderCreated', '[1,2]');
INSERT INTO outbox VALUES ('0b6f1f0e-5d4c-5f43-8f0b-0d5a6a1f1203', 'Customer', 'c-ä', 'CustomerCreated', NULL);
