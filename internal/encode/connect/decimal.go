package connect

import (
	"bytes"
	"encoding/base64"
	"errors"
	"math/big"
	"regexp"
	"slices"
	"strconv"
)

var (
	errNotNumeric  = errors.New("not a numeric")
	errNoDecimal   = errors.New("NaN and infinity have no form as a decimal")
	errNullDecimal = errors.New("NaN and infinity have no form as a decimal: Debezium writes a null")
	errScale       = errors.New("more decimal places than the column's scale")
	errWideScale   = errors.New("a negative scale: Debezium reads it as 2046 decimal places")
	errNotMoney    = errors.New("not money as the locale C prints it")
)

// A number is the text of a numeric: its digits without the point, and how many are behind it.
type number struct {
	negative bool
	digits   []byte // at least one, no needless zeros in front
	scale    int
}

// parseNumber parses the output of numeric_out for a finite number. The digits are stored in buf.
func parseNumber(buf, text []byte) (number, error) {
	n := number{digits: buf[:0]}
	rest, negative := bytes.CutPrefix(text, []byte("-"))
	point := false
	for _, c := range rest {
		switch {
		case c == '.' && !point:
			point = true
		case c >= '0' && c <= '9':
			n.digits = append(n.digits, c)
			if point {
				n.scale++
			}
		default:
			return n, errNotNumeric
		}
	}
	if len(n.digits) == 0 {
		return n, errNotNumeric
	}
	n.trimLeft()
	n.negative = negative && !n.isZero()
	return n, nil
}

func (n *number) trimLeft() {
	for len(n.digits) > 1 && n.digits[0] == '0' {
		n.digits = n.digits[1:]
	}
}

func (n *number) isZero() bool { return n.digits[0] == '0' } // as trimLeft leaves it

// strip removes trailing zeros of the fraction.
func (n *number) strip() {
	for n.scale > 0 && len(n.digits) > 1 && n.digits[len(n.digits)-1] == '0' {
		n.digits = n.digits[:len(n.digits)-1]
		n.scale--
	}
	if n.isZero() {
		n.scale = 0
	}
}

// setScale adds trailing zeros to the fraction or removes them. It fails if it would have to remove
// another digit.
func (n *number) setScale(scale int) error {
	for n.scale < scale {
		n.digits = append(n.digits, '0')
		n.scale++
	}
	n.trimLeft()
	for n.scale > scale {
		last := len(n.digits) - 1
		if n.digits[last] != '0' {
			return errScale
		}
		if last > 0 {
			n.digits = n.digits[:last]
		}
		n.scale--
	}
	return nil
}

// halfUp rounds n to the scale; halves are rounded away from zero.
func (n *number) halfUp(scale int) {
	for n.scale > scale+1 {
		n.dropDigit()
	}
	if n.scale > scale {
		up := n.dropDigit() >= '5'
		if up {
			n.increment()
		}
	}
	_ = n.setScale(scale) // only zeros are added now
	n.negative = n.negative && !n.isZero()
}

func (n *number) dropDigit() (digit byte) {
	last := len(n.digits) - 1
	digit = n.digits[last]
	n.digits = n.digits[:last]
	if last == 0 {
		n.digits = append(n.digits, '0')
	}
	n.scale--
	return digit
}

func (n *number) increment() {
	for i := len(n.digits) - 1; i >= 0; i-- {
		if n.digits[i] != '9' {
			n.digits[i]++
			return
		}
		n.digits[i] = '0'
	}
	n.digits = slices.Insert(n.digits, 0, '1')
}

// appendBigDecimal appends n as BigDecimal.toString prints it.
func (n *number) appendBigDecimal(dst []byte) []byte {
	if n.negative {
		dst = append(dst, '-')
	}
	exponent := len(n.digits) - 1 - n.scale
	switch point := len(n.digits) - n.scale; {
	case n.scale == 0:
		return append(dst, n.digits...)
	case exponent < -6:
		dst = append(dst, n.digits[0])
		if len(n.digits) > 1 {
			dst = append(append(dst, '.'), n.digits[1:]...)
		}
		return strconv.AppendInt(append(dst, 'E'), int64(exponent), 10)
	case point > 0:
		dst = append(append(dst, n.digits[:point]...), '.')
		return append(dst, n.digits[point:]...)
	default:
		dst = appendZeros(append(dst, "0."...), -point)
		return append(dst, n.digits...)
	}
}

// appendUnscaled appends the base64 of the digits as a big-endian two's complement number.
func (n *number) appendUnscaled(dst []byte) []byte {
	var buf [32]byte
	return base64.StdEncoding.AppendEncode(dst, n.unscaled(buf[:0]))
}

func (n *number) unscaled(buf []byte) []byte {
	if len(n.digits) <= 18 {
		var v int64
		for _, c := range n.digits {
			v = v*10 + int64(c-'0')
		}
		if n.negative {
			v = -v
		}
		return appendTwosComplement(buf, v)
	}
	v, _ := new(big.Int).SetString(string(n.digits), 10) // digits only
	if n.negative {
		v.Not(v.Neg(v))
	}
	size := v.BitLen()/8 + 1
	out := v.FillBytes(make([]byte, size))
	if n.negative {
		for i := range out {
			out[i] = ^out[i]
		}
	}
	return out
}

// appendTwosComplement appends v, big-endian, in as few bytes as represent it with its sign.
func appendTwosComplement(dst []byte, v int64) []byte {
	shift := 56
	for ; shift > 0; shift -= 8 {
		if top := v >> (shift - 1); top != 0 && top != -1 {
			break
		}
	}
	for ; shift >= 0; shift -= 8 {
		dst = append(dst, byte(v>>shift))
	}
	return dst
}

// numericCodec returns the codec of a numeric with the type modifier mod.
func numericCodec(mod int32, m modes) codec {
	switch {
	case m.Decimal == "double":
		return doubleNumericCodec()
	case m.Decimal == "string":
		return stringNumericCodec()
	case mod < 0:
		return variableScaleCodec(m)
	}
	precision, scale := int((mod-4)>>16&0xffff), int((mod-4)<<21>>21) // as numeric_typmod_precision and _scale of Postgres 15
	negativeScale := scale < 0
	c := codec{schema: decimalSchema(max(scale, 0))}
	c.schema.parameters = append(c.schema.parameters, parameter{"connect.decimal.precision", strconv.Itoa(precision)})
	c.append = func(dst []byte, s style, text []byte) ([]byte, error) {
		if negativeScale && m.Exact {
			return nil, errWideScale
		}
		if isSpecial(text) {
			return m.appendSpecial(dst, s, text)
		}
		var buf [64]byte
		n, err := parseNumber(buf[:0], text)
		if err == nil {
			err = n.setScale(max(scale, 0))
		}
		if err != nil {
			return nil, err
		}
		return n.appendDecimal(dst, s), nil
	}
	return c
}

func decimalSchema(scale int) schema {
	return schema{
		kind: "bytes", name: "org.apache.kafka.connect.data.Decimal", version: 1,
		parameters: []parameter{{"scale", strconv.Itoa(scale)}},
	}
}

func (n *number) appendDecimal(dst []byte, s style) []byte {
	if s.json() {
		return s.quote(n.appendUnscaled(s.quote(dst)))
	}
	return n.appendBigDecimal(dst)
}

func isSpecial(text []byte) bool {
	return len(text) > 0 && (text[len(text)-1] == 'N' || text[len(text)-1] == 'y')
}

// appendSpecial appends the name of NaN or an infinity in place of a decimal. It fails with
// Modes.Exact, and for JSON, where readers expect base64.
func (m modes) appendSpecial(dst []byte, s style, text []byte) ([]byte, error) {
	switch {
	case m.Exact:
		return nil, errNullDecimal
	case s.json(): // where a reader decodes base64
		return nil, errNoDecimal
	}
	return append(dst, text...), nil
}

// doubleNumericCodec returns the codec of numeric with decimal.handling.mode=double.
func doubleNumericCodec() codec { return floatCodec(64) }

// stringNumericCodec returns the codec of numeric with decimal.handling.mode=string.
func stringNumericCodec() codec {
	c := stringCodec("")
	c.same, c.append = false, func(dst []byte, s style, text []byte) ([]byte, error) {
		switch string(text) { // the names of constants in Java
		case "NaN":
			text = []byte("NAN")
		case "Infinity":
			text = []byte("POSITIVE_INFINITY")
		case "-Infinity":
			text = []byte("NEGATIVE_INFINITY")
		}
		return appendString(dst, s, text), nil
	}
	return c
}

// variableScaleCodec returns the codec of a numeric without a declared scale: a struct of the scale
// and the unscaled value.
func variableScaleCodec(m modes) codec {
	c := codec{schema: schema{
		kind: "struct", name: "io.debezium.data.VariableScaleDecimal", version: 1, doc: "Variable scaled decimal",
		fields: []field{{"scale", schema{kind: "int32"}}, {"value", schema{kind: "bytes"}}},
	}}
	c.append = func(dst []byte, s style, text []byte) ([]byte, error) {
		if isSpecial(text) {
			return m.appendSpecial(dst, s, text)
		}
		var buf [64]byte
		n, err := parseNumber(buf[:0], text)
		if err != nil {
			return nil, err
		}
		n.strip()
		if s == java {
			if m.Exact {
				return nil, errAddress
			}
			return append(dst, text...), nil
		}
		dst = strconv.AppendInt(append(dst, `{"scale":`...), int64(n.scale), 10)
		dst = n.appendUnscaled(append(dst, `,"value":"`...))
		return append(dst, `"}`...), nil
	}
	return c
}

// moneyCodec returns the codec of money. places is Type.MoneyPlaces.
func moneyCodec(places *int, m modes) codec {
	digits := m.moneyDigits
	var c codec
	switch m.Decimal {
	case "double":
		c.schema = schema{kind: "double"}
	case "string":
		c.schema = schema{kind: "string"}
	default:
		c.schema = decimalSchema(digits)
	}
	c.append = func(dst []byte, s style, text []byte) ([]byte, error) {
		var buf, plainBuf [64]byte
		n, err := parseMoney(buf[:0], text, places)
		if err != nil {
			return nil, err
		}
		switch m.Decimal {
		case "double":
			v, err := strconv.ParseFloat(string(n.appendBigDecimal(plainBuf[:0])), 64)
			return appendFloat(dst, s, v, 64), err
		case "string":
			return appendString(dst, s, n.appendBigDecimal(plainBuf[:0])), nil
		default:
			n.halfUp(digits)
			return n.appendDecimal(dst, s), nil
		}
	}
	return c
}

// moneyOfC matches the text of money in the locale C: -$1,234.56. Other locales put the point elsewhere, so that another text
// could mean another amount.
var moneyOfC = regexp.MustCompile(`^-?\$[0-9]{1,3}(,[0-9]{3})*\.[0-9]{2}$`)

// parseMoney parses the output of cash_out for the locale C or, if places is not nil, for a locale whose currency has so many
// decimal places. That text has every digit, whatever is between them. A negative amount has a minus or is in brackets.
func parseMoney(buf, text []byte, places *int) (number, error) {
	n := number{digits: buf[:0], scale: 2}
	switch {
	case places != nil:
		n.scale = *places
	case !moneyOfC.Match(text):
		return n, errNotMoney
	}
	for _, c := range text {
		if c >= '0' && c <= '9' {
			n.digits = append(n.digits, c)
		}
	}
	if len(n.digits) <= n.scale {
		return n, errNotMoney
	}
	n.trimLeft()
	n.negative = bytes.ContainsAny(text, "-(") && !n.isZero()
	return n, nil
}
