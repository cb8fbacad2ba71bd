INSERT INTO outbox VALUES ('0b6f1f0e-5d4c-5f43-8f0b-0d5a6a1f1c01', 'Blob', 'k-1', 'Stored', '\x00ff00ff');
INSERT INTO outbox VALUES ('0b6f1f0e-5d4c-5f43-8f0b-0d5a6a1f1c02', 'Blob', 'k-1', 'Stored', '\x');
INSERT INTO outbox VALUES ('0b6f1f0e-5d4c-5f43-8f0b-0d5a6a1f1c03', 'Blob', 'k-ä', 'Stored', '\x7b7d');
INSERT INTO outbox VALUES ('0b6f1f0e-5d4c-5f43-8f0b-0d5a6a1f1c04', 'Blob', 'k-1', 'Stored', NULL);
