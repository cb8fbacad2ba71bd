package config

import "github.com/outbox-cdc/outbox-cdc/internal/relay"

// Sending returns the settings with which records are made and sent beside a relay: Name, Route,
// Tables, Messages, Sink, DeadLetterTopic, StartupTimeout and DrainTimeout, and Source.Conn where
// it is said which database is meant. Its error is an [*Error] with every key that is missing or
// wrong.
func (c *Config) Sending() (relay.Config, error) {
	cfg := relay.Config{
		Name: c.name(), Route: c.route(), Tables: c.tables(), Messages: c.Outbox.Messages, DeadLetterTopic: c.DeadLetterTopic,
		StartupTimeout: c.StartupTimeout, DrainTimeout: c.DrainTimeout,
	}
	var problems []Problem
	if len(c.Sink.Kafka.Brokers) == 0 {
		problems = problemsOf(c.missing("sink.kafka.brokers"))
	}
	var err error
	cfg.Sink, err = c.kafka()
	problems = append(problems, problemsOf(err)...)
	if c.namesSource() {
		pg, err := c.Postgres()
		problems = append(problems, problemsOf(err)...)
		if err == nil {
			cfg.Source.Conn = &pg.Config
		}
	}
	if len(problems) > 0 {
		return relay.Config{}, &Error{Problems: problems}
	}
	return cfg, nil
}
