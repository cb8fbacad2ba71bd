package sink

import (
	"fmt"
	"reflect"
)

// CheckNotNegative returns an error that names the first negative number of a [Broker]'s configuration, a struct. The numbers of
// its structs count too.
func CheckNotNegative(config any) error { return checkNotNegative("sink: ", reflect.ValueOf(config)) }

func checkNotNegative(prefix string, config reflect.Value) error {
	for i := range config.NumField() {
		name, value := prefix+config.Type().Field(i).Name, config.Field(i)
		switch {
		case value.Kind() == reflect.Struct:
			if err := checkNotNegative(name+".", value); err != nil {
				return err
			}
		case value.CanInt() && value.Int() < 0:
			return fmt.Errorf("%s is negative", name)
		}
	}
	return nil
}
