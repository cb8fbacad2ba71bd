CREATE TABLE public.outbox (
  id            uuid         NOT NULL PRIMARY KEY,
  aggregatetype varchar(255) NOT NULL,
  aggregateid   varchar(255) NOT NULL,
  type          varchar(255) NOT NULL,
  payload       text,
  tenant        text,
  n             integer,
  shard         integer,
  at            timestamp
);
