BEGIN;
INSERT INTO orders VALUES (1, 10);
INSERT INTO outbox VALUES ('0b6f1f0e-5d4c-5f43-8f0b-0d5a6a1f1a01', 'Order', '1', 'OrderCreated', '{"total": 10}');
COMMIT;
UPDATE orders SET total = 20 WHERE id = 1;
INSERT INTO outbox VALUES ('0b6f1f0e-5d4c-5f43-8f0b-0d5a6a1f1a02', 'Order', '1', 'OrderChanged', '{"total": 20}');
INSERT INTO outbox VALUES ('0b6f1f0e-5d4c-5f43-8f0b-0d5a6a1f1a03', 'Customer', 'c-1', 'CustomerCreated', NULL);
