package debezium

import (
	"regexp/syntax"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
)

// Routes with which topics are tested in addition to those that an expression names. anyRoute is an ordinary one, and
// awkwardRoute has the other characters of names that every broker allows.
const (
	anyRoute     = "Order"
	awkwardRoute = "order.line-item_2"
)

// maxSamples limits the samples of one expression.
const maxSamples = 64

// A sample is a text that matches an expression. It is named if the expression spells it out.
type sample struct {
	text  string
	named bool
}

// routesOf returns routes that match the expressions of the configuration. An expression that is applied to a topic has the
// routes of such topics.
func routesOf(route encode.Config) []sample {
	var out []sample
	before, after, ok := strings.Cut(route.Topic, "${route}")
	if !ok {
		return nil
	}
	for _, r := range route.TopicRules {
		parsed, err := syntax.Parse(r.Match, syntax.Perl)
		if err != nil {
			continue
		}
		for _, s := range samplesOf(parsed) {
			name, begins := strings.CutPrefix(s.text, before)
			name, ends := strings.CutSuffix(name, after)
			if begins && ends && name != "" {
				out = append(out, sample{name, s.named})
			}
		}
	}
	return out
}

// samplesOf returns a sample of an expression for each combination of alternatives, at most maxSamples. What is repeated
// is in it once, and a set of characters is one of them.
func samplesOf(re *syntax.Regexp) []sample {
	switch re.Op {
	case syntax.OpLiteral:
		return []sample{{string(re.Rune), true}}
	case syntax.OpCharClass:
		return []sample{{characterOf(re.Rune), false}}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return []sample{{"x", false}}
	case syntax.OpCapture, syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		return samplesOf(re.Sub[0])
	case syntax.OpAlternate:
		var out []sample
		for _, sub := range re.Sub {
			out = append(out, samplesOf(sub)...)
		}
		return out[:min(len(out), maxSamples)]
	case syntax.OpConcat:
		out := []sample{{"", true}}
		for _, sub := range re.Sub {
			var longer []sample
			for _, begin := range out {
				for _, end := range samplesOf(sub) {
					longer = append(longer, sample{begin.text + end.text, begin.named && end.named})
				}
			}
			out = longer[:min(len(longer), maxSamples)]
		}
		return out
	case syntax.OpEmptyMatch, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return []sample{{"", true}}
	case syntax.OpNoMatch:
	}
	return nil
}

// characterOf returns a letter or digit of a set of characters if it has one of these, and its first one otherwise. ranges
// are pairs of a first and a last character.
func characterOf(ranges []rune) string {
	for _, c := range "xX0" {
		for i := 0; i < len(ranges); i += 2 {
			if ranges[i] <= c && c <= ranges[i+1] {
				return string(c)
			}
		}
	}
	return string(ranges[:min(len(ranges), 1)])
}

// judgeTopics returns the verdict on the topics of rows, or none if all samples have a legal topic.
func judgeTopics(route encode.Config) (verdict, string) {
	if illegal := route.IllegalTopic(); illegal != "" {
		return rejected, "every row would go to one topic, whose name " + illegal
	}
	usual, awkward := route.IllegalFor(anyRoute), route.IllegalFor(awkwardRoute)
	if usual != "" && awkward != "" {
		return rejected, "no row has a legal topic: for the route " + anyRoute + ", its name " + usual
	}
	samples := append(routesOf(route), sample{anyRoute, false}, sample{awkwardRoute, false})
	for _, named := range []bool{true, false} {
		for _, s := range samples {
			switch illegal := route.IllegalFor(s.text); {
			case illegal == "" || s.named != named:
			case named:
				return rejected, "a row with the route " + s.text + " has no legal topic: its name " + illegal
			default:
				return partial, "for a route such as " + s.text + " the topic's name " + illegal + ": it is a bad row, at which Debezium fails too"
			}
		}
	}
	return "", ""
}
