INSERT INTO outbox VALUES ('0b6f1f0e-5d4c-5f43-8f0b-0d5a6a1f1001', 'Order', 'o-1', 'OrderCreated', '{"total": 9.5, "lines": [{"sku": "A"}]}', 't-1');
INSERT INTO outbox VALUES ('0b6f1f0e-5d4c-5f43-8f0b-0d5a6a1f1002', 'Order', 'o-2', 'OrderPaid', '{"total": 1}', NULL);
INSERT INTO outbox VALUES ('0b6f1f0e-5d4c-5f43-8f0b-0d5a6a1f1003', 'Customer', 'c-1', 'CustomerCreated', NULL, 't-2');
