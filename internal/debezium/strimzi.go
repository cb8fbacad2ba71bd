package debezium

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// A manifest has the used fields of Strimzi's resources KafkaConnector and KafkaConnect:
// https://strimzi.io/docs/operators/latest/configuring.html
type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		Class            string
		TasksMax         string `yaml:"tasksMax"`
		BootstrapServers string `yaml:"bootstrapServers"`
		TLS              yaml.Node
		Authentication   yaml.Node
		Config           yaml.Node
	}
}

// findManifest returns the only resource of a kind in a file.
func findManifest(data []byte, kind string) (*manifest, error) {
	var found *manifest
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var m manifest
		var doc yaml.Node
		if err := decoder.Decode(&doc); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, errors.New("not YAML: " + withoutValues(err))
		}
		if err := doc.Decode(&m); err != nil || m.Kind != kind {
			continue // another kind of resource
		}
		if found != nil {
			return nil, fmt.Errorf("more than one %s: import them one by one", kind)
		}
		found = &m
	}
	if found == nil {
		return nil, fmt.Errorf("no %s can be read: it needs a spec with config", kind)
	}
	return found, nil
}

// config returns the keys of spec.config.
func (m *manifest) config() ([]pair, error) {
	var out []pair
	config := m.Spec.Config.Content
	for i := 0; i+1 < len(config); i += 2 {
		key, value := config[i].Value, config[i+1]
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		if value.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("spec.config.%s: a text is needed", key)
		}
		if value.ShortTag() != "!!null" {
			out = append(out, pair{key, value.Value})
		}
	}
	return out, nil
}

// parseStrimzi parses a KafkaConnector.
func parseStrimzi(data []byte) (*Input, error) {
	m, err := findManifest(data, "KafkaConnector")
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	in := &Input{form: formStrimzi, Name: m.Metadata.Name}
	in.add("connector.class", "spec.class", m.Spec.Class)
	if m.Spec.TasksMax != "" {
		in.add("tasks.max", "spec.tasksMax", m.Spec.TasksMax)
	}
	pairs, err := m.config()
	for _, p := range pairs {
		in.add(p.key, p.key, p.value)
	}
	if err != nil {
		return nil, err
	}
	return in, in.check()
}

// parseWorker parses the properties of a worker, or a KafkaConnect.
func parseWorker(data []byte) ([]pair, error) {
	if !utf8.Valid(data) {
		return nil, errNotText
	}
	if !isKind(data, "KafkaConnect") {
		return parseProperties(string(data))
	}
	m, err := findManifest(data, "KafkaConnect")
	if err != nil {
		return nil, err
	}
	if m.Spec.TLS.Kind != 0 || m.Spec.Authentication.Kind != 0 {
		return nil, errors.New("of spec.tls and spec.authentication the operator makes files inside the worker:" +
			" give a properties file with converters, bootstrap.servers and producer.security.protocol, producer.sasl.… and producer.ssl.… instead")
	}
	pairs, err := m.config()
	return append(pairs, pair{"bootstrap.servers", m.Spec.BootstrapServers}), err
}

// withoutValues returns the error of the YAML parser without text of the document.
func withoutValues(err error) string {
	if line := regexp.MustCompile(`line \d+`).FindString(err.Error()); line != "" {
		return "broken at " + line
	}
	return "broken"
}
