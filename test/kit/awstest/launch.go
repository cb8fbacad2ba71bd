package awstest

import "context"

// An Emulator is an ElasticMQ of its own.
type Emulator struct{ server server }

// LaunchElasticMQ starts an ElasticMQ and returns when it serves requests. ctx limits only the start. The caller must call
// Stop. Tests call ElasticMQ instead.
func LaunchElasticMQ(ctx context.Context) (*Emulator, error) {
	e := new(Emulator)
	if err := e.server.launch(ctx, elasticMQCommand); err != nil {
		return nil, err
	}
	return e, nil
}

// Addr returns 127.0.0.1:port.
func (e *Emulator) Addr() string { return e.server.port.Addr() }

// Stop kills the server and removes its data.
func (e *Emulator) Stop() error { return e.server.stop() }
