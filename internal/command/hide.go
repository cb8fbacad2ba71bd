package command

import (
	"errors"
	"strconv"
	"strings"
)

// withoutSecrets returns err without those of the arguments that may be secrets in the wrong
// place, such as a connection string where a verb or a flag was forgotten.
func withoutSecrets(err error, args []string) error {
	text, _, _ := strings.Cut(err.Error(), " in -") // cobra repeats an unknown short flag with what it is glued to
	for _, arg := range args {
		if strings.ContainsAny(arg, "@=") {
			text = strings.NewReplacer(strconv.Quote(arg), "***", arg, "***").Replace(text)
		}
	}
	return errors.New(text)
}
