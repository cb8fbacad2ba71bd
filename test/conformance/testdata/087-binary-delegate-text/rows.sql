INSERT INTO outbox VALUES ('0b6f1f0e-5d4c-5f43-8f0b-0d5a6a1f1d01', 'Blob', '\x01', 'Stored', 'text "a"');
INSERT INTO outbox VALUES ('0b6f1f0e-5d4c-5f43-8f0b-0d5a6a1f1d02', 'Blob', '\x01', 'Stored', '');
INSERT INTO outbox VALUES ('0b6f1f0e-5d4c-5f43-8f0b-0d5a6a1f1d03', 'Blob', '\x6b6579', 'Stored', NULL);
