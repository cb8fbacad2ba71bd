INSERT INTO outbox VALUES ('0b6f1f0e-5d4c-5f43-8f0b-0d5a6a1f1101', 'Order', 'o-1', 'OrderCreated', '\x00ff00ff', 1.50);
INSERT INTO outbox VALUES ('0b6f1f0e-5d4c-5f43-8f0b-0d5a6a1f1102', 'Order', 'o-2', 'OrderCreated', '\x', NULL);
INSERT INTO outbox VALUES ('0b6f1f0e-5d4c-5f43-8f0b-0d5a6a1f1103', 'Customer', 'c-1', 'CustomerCreated', NULL, -1);
