package show

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/config"
)

// Size is bytes as people say them; programs get the number.
func Size(bytes int64) string { return config.Bytes(bytes).Rough() }

// Span is a length of time with the two units that matter: 0.4s, 12s, 1m20s, 5h3m, 2d4h.
func Span(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Span(-d)
	case d < 9950*time.Millisecond:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute-time.Second/2:
		return fmt.Sprintf("%.0fs", d.Seconds())
	}
	s := int64(d.Round(time.Second) / time.Second)
	pair := func(big int64, bigUnit string, small int64, smallUnit string) string {
		return fmt.Sprintf("%d%s%d%s", big, bigUnit, small, smallUnit)
	}
	switch {
	case s < 3600:
		return pair(s/60, "m", s%60, "s")
	case s < 24*3600:
		return pair(s/3600, "h", s%3600/60, "m")
	default:
		return pair(s/86400, "d", s%86400/3600, "h")
	}
}

// Left is a remaining time as a table shows it. Absent is not zero: no deadline is known.
func Left(remaining *durationpb.Duration) string {
	switch {
	case remaining == nil:
		return "-"
	case remaining.AsDuration() <= 0:
		return "now"
	default:
		return "in " + Span(remaining.AsDuration())
	}
}

// Age is how long ago something was. Absent is not known: a coordinator that was restarted has heard nobody yet.
func Age(d *durationpb.Duration) string {
	if d == nil {
		return "-"
	}
	return Span(max(0, d.AsDuration()))
}

// Dash stands for what is empty, so that columns stay columns for awk as well.
func Dash(s string) string { return cmp.Or(s, "-") }

// Count is so many of something.
func Count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Plain makes text that came off the wire fit for a terminal: one line, no control characters, and none that has others read
// in another order than they stand in.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp) {
			return '?'
		}
		return r
	}, s)
}

// Some is as much of a list as fits, and how much does not.
func Some(all []string, width int) string {
	line, more := strings.Join(all, ", "), ""
	for shown := len(all) - 1; shown > 0 && Columns(line+more) > width; shown-- {
		line, more = strings.Join(all[:shown], ", "), fmt.Sprintf(" and %d more", len(all)-shown)
	}
	return Cut(line, width-Columns(more)) + more
}
