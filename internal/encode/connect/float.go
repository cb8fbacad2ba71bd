package connect

import (
	"errors"
	"math"
	"math/big"
	"math/bits"
	"strconv"
)

var errNotFloat = errors.New("not a floating-point number")

// floatCodec returns the codec of float4 (bitSize 32) and float8 (bitSize 64).
func floatCodec(bitSize int) codec {
	name := "double"
	if bitSize == 32 {
		name = "float"
	}
	return codec{schema: schema{kind: name}, append: func(dst []byte, s style, text []byte) ([]byte, error) {
		v, err := strconv.ParseFloat(string(text), bitSize)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return nil, errNotFloat
		}
		return appendFloat(dst, s, v, bitSize), nil
	}}
}

// appendFloat appends v as Java prints it. In JSON, NaN and the infinities are strings.
func appendFloat(dst []byte, s style, v float64, bitSize int) []byte {
	if s.json() && (math.IsNaN(v) || math.IsInf(v, 0)) {
		return s.quote(appendJavaFloat(s.quote(dst), v, bitSize))
	}
	return appendJavaFloat(dst, v, bitSize)
}

// appendJavaFloat appends v as Double.toString, or Float.toString for 32 bits, prints it up to
// Java 18: always with a decimal point, in exponent form below 1e-3 and from 1e7. These versions do
// not always find the shortest digits (2.82879384806159008E17); Java 19 and later do.
func appendJavaFloat(dst []byte, v float64, bitSize int) []byte {
	switch {
	case math.IsNaN(v):
		return append(dst, "NaN"...)
	case math.Signbit(v):
		dst = append(dst, '-')
		v = -v
	}
	switch {
	case math.IsInf(v, 0):
		return append(dst, "Infinity"...)
	case v == 0:
		return append(dst, "0.0"...)
	}
	var buf [24]byte
	d := newFloating(v, bitSize).decimal(buf[:0])
	return d.append(dst)
}

// A decimal is 0.DIGITS times ten to the power of exp.
type decimal struct {
	digits []byte // '0' to '9', the first not '0'
	exp    int
}

func (d *decimal) append(dst []byte) []byte {
	n := len(d.digits)
	switch {
	case d.exp > 0 && d.exp < 8 && n > d.exp:
		dst = append(dst, d.digits[:d.exp]...)
		dst = append(dst, '.')
		return append(dst, d.digits[d.exp:]...)
	case d.exp > 0 && d.exp < 8:
		dst = append(dst, d.digits...)
		return append(appendZeros(dst, d.exp-n), ".0"...)
	case d.exp <= 0 && d.exp > -3:
		dst = appendZeros(append(dst, "0."...), -d.exp)
		return append(dst, d.digits...)
	}
	dst = append(dst, d.digits[0], '.')
	if n > 1 {
		dst = append(dst, d.digits[1:]...)
	} else {
		dst = append(dst, '0')
	}
	dst = append(dst, 'E')
	return strconv.AppendInt(dst, int64(d.exp-1), 10)
}

func appendZeros(dst []byte, n int) []byte {
	for range n {
		dst = append(dst, '0')
	}
	return dst
}

// A floating is a positive finite number: fraction/2^52 times two to the power of exp, where
// 2^52 <= fraction < 2^53, known to precision bits.
type floating struct {
	fraction  uint64
	exp       int
	precision int
}

const fractionBits = 52 // of a float64, the leading one not counted

func newFloating(v float64, bitSize int) floating {
	field, bias, width := math.Float64bits(v), 1023, fractionBits
	if bitSize == 32 {
		field, bias, width = uint64(math.Float32bits(float32(v))), 127, 23
	}
	b := floating{exp: int(field>>width) - bias, fraction: field & (1<<width - 1), precision: width + 1}
	if b.exp == -bias { // subnormal: no leading one, fewer bits
		b.precision = bits.Len64(b.fraction)
		b.exp += b.precision - width
	} else {
		b.fraction |= 1 << width
	}
	b.fraction <<= fractionBits + 1 - bits.Len64(b.fraction)
	return b
}

// decimal returns the digits that tell b from its neighbours, written into buf. It generates
// digits one by one until the rest is within half a unit of the last place, as Steele and White
// describe, with the peculiarities of Java's implementation: a whole number below 2^63 is
// written out and cut to its significant digits; the margin is symmetric and, of a power of two,
// that of its smaller neighbour; and exponent form has two digits at least.
func (b floating) decimal(buf []byte) decimal {
	zeros := bits.TrailingZeros64(b.fraction)
	width := fractionBits + 1 - zeros
	below := max(0, width-b.exp-1) // bits behind the binary point
	if below == 0 && b.exp <= 62 {
		return b.whole(buf)
	}
	exp := b.estimate()
	scale := digitScale{
		fraction: b.fraction >> zeros,
		b5:       max(0, -exp), s5: max(0, exp),
		b2: max(0, -exp) + below + b.exp - (width - 1),
		s2: max(0, exp) + below,
		m2: max(0, -exp) + below + b.exp - b.precision,
	}
	common := min(scale.b2, scale.s2)
	scale.b2, scale.s2, scale.m2 = scale.b2-common, scale.s2-common, scale.m2-common
	if width == 1 {
		scale.m2--
	}
	if scale.m2 < 0 {
		scale.b2, scale.s2, scale.m2 = scale.b2-scale.m2, scale.s2-scale.m2, 0
	}
	switch value, ten := width+scale.b2+bitsOfPow5(scale.b5), scale.s2+1+bitsOfPow5(scale.s5+1); {
	case value < 32 && ten < 32:
		return small[int32](scale, buf, exp)
	case value < 64 && ten < 64:
		return small[int64](scale, buf, exp)
	}
	return scale.large(buf, exp)
}

// estimate is the decimal exponent of b, or one more.
func (b floating) estimate() int {
	mantissa := math.Float64frombits(1023<<fractionBits | b.fraction&(1<<fractionBits-1))
	log := float64((mantissa-1.5)*0.289529654) + 0.176091259
	return int(math.Floor(log + float64(float64(b.exp)*0.301029995663981)))
}

// whole is decimal for an integer below 2^63.
func (b floating) whole(buf []byte) decimal {
	v := b.fraction
	if b.exp >= fractionBits {
		v <<= b.exp - fractionBits
	} else {
		v >>= fractionBits - b.exp
	}
	dropped := 0
	if b.exp > b.precision {
		if p := b.exp - b.precision - 1; p > 1 {
			dropped = int(float64(p) * math.Ln2 / math.Ln10) // decimal digits of 2^p, less one
		}
	}
	if dropped > 0 {
		unit := uint64(1)
		for range dropped {
			unit *= 10
		}
		rest := v % unit
		v /= unit
		if rest >= unit/2 {
			v++
		}
	}
	digits := strconv.AppendUint(buf, v, 10)
	d := decimal{digits: digits, exp: len(digits) + dropped}
	for len(d.digits) > 1 && d.digits[len(d.digits)-1] == '0' {
		d.digits = d.digits[:len(d.digits)-1]
	}
	return d
}

// bitsOfPow5 is about how many bits five to the power of n has.
func bitsOfPow5(n int) int {
	switch {
	case n == 0:
		return 0
	case n < 27:
		return bits.Len64(pow5(n))
	}
	return n * 3
}

func pow5(n int) uint64 {
	p := uint64(1)
	for range n {
		p *= 5
	}
	return p
}

// A digitScale holds the three numbers of digit generation as products: the value is
// fraction·5^b5·2^b2 over 5^s5·2^s2, and half a unit in the last place 5^b5·2^m2 over the same.
type digitScale struct {
	fraction       uint64
	b5, b2, s5, s2 int
	m2             int
}

// A digitEnd is the state when the last digit is out: whether the remainder is within the margin
// of the number below, and of the one above, and the sign of the remainder less one half.
type digitEnd struct {
	low, high bool
	half      int
}

// small generates the digits in words of the size that Java would take. The margin may outgrow
// its word; a negative one is then beyond every remainder.
func small[word int32 | int64](s digitScale, buf []byte, exp int) decimal {
	value := word(s.fraction*pow5(s.b5)) << s.b2
	unit := word(pow5(s.s5)) << s.s2
	margin := word(pow5(s.b5)) << s.m2
	ten := unit * 10
	d := decimal{digits: buf, exp: exp + 1}
	var end digitEnd
	for first := true; first || !end.low && !end.high; {
		q := value / unit
		value = value % unit * 10
		margin *= 10
		if end = (digitEnd{low: value < margin, high: value+margin > ten}); margin <= 0 {
			end = digitEnd{low: true, high: true}
		}
		d.next(&first, &end, byte(q))
	}
	switch rest := value*2 - ten; {
	case rest < 0:
		end.half = -1
	case rest > 0:
		end.half = 1
	}
	return d.round(end)
}

// large generates the digits in numbers of any size.
func (s digitScale) large(buf []byte, exp int) decimal {
	product := func(v uint64, fives, twos int) *big.Int {
		n := new(big.Int).Exp(big.NewInt(5), big.NewInt(int64(fives)), nil)
		n.Mul(n, new(big.Int).SetUint64(v))
		return n.Lsh(n, uint(twos))
	}
	value, unit, margin := product(s.fraction, s.b5, s.b2), product(1, s.s5, s.s2), product(1, s.b5, s.m2)
	bigTen := big.NewInt(10)
	ten := new(big.Int).Mul(unit, bigTen)
	d := decimal{digits: buf, exp: exp + 1}
	var end digitEnd
	q, sum := new(big.Int), new(big.Int)
	for first := true; first || !end.low && !end.high; {
		q.QuoRem(value, unit, value)
		value.Mul(value, bigTen)
		margin.Mul(margin, bigTen)
		end = digitEnd{low: value.Cmp(margin) < 0, high: sum.Add(value, margin).Cmp(ten) >= 0}
		d.next(&first, &end, byte(q.Uint64()))
	}
	end.half = value.Lsh(value, 1).Cmp(ten)
	return d.round(end)
}

// next takes one digit. A leading zero means that the exponent was estimated one too high;
// in exponent form the first digit is never the last.
func (d *decimal) next(first *bool, end *digitEnd, digit byte) {
	if !*first {
		d.digits = append(d.digits, '0'+digit)
		return
	}
	*first = false
	if digit == 0 && !end.high {
		d.exp--
	} else {
		d.digits = append(d.digits, '0'+digit)
	}
	if d.exp-1 < -3 || d.exp-1 >= 8 {
		end.low, end.high = false, false
	}
}

// round increments the last digit if the remainder calls for it.
func (d *decimal) round(end digitEnd) decimal {
	last := len(d.digits) - 1
	up := end.high
	if end.high && end.low {
		up = end.half > 0 || end.half == 0 && d.digits[last]&1 != 0
	}
	if !up {
		return *d
	}
	for ; last > 0 && d.digits[last] == '9'; last-- {
		d.digits[last] = '0'
	}
	if d.digits[last] == '9' {
		d.digits[0] = '1'
		d.exp++
		return *d
	}
	d.digits[last]++
	return *d
}
