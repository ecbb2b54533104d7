package show

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/config"
)

// Size formats bytes for people; programs get the number.
func Size(bytes int64) string { return config.Bytes(bytes).Rough() }

// Span formats a duration with its two largest units: 0.4s, 12s, 1m20s, 5h3m, 2d4h.
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

// Left formats the time until a deadline. nil is not zero: no deadline is known.
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

// Age formats how long ago something was; nil: not known, as when a restarted coordinator has heard no heartbeat of a node yet.
func Age(d *durationpb.Duration) string {
	if d == nil {
		return "-"
	}
	return Span(max(0, d.AsDuration()))
}

// Instant formats when something was or will be; nil: not known.
func Instant(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return t.AsTime().Format(time.RFC3339)
}

// Dash replaces an empty cell by "-", so that awk counts the columns right.
func Dash(s string) string { return cmp.Or(s, "-") }

// Count formats a number with its noun, in the plural unless it is 1.
func Count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Plain makes text that came off the wire fit for a terminal: it replaces line ends, control characters, and the bidirectional controls
// that would show text in another order.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp) {
			return '?'
		}
		return r
	}, s)
}

// Some formats as much of a list as fits into width, and how many items do not.
func Some(all []string, width int) string {
	line, more := strings.Join(all, ", "), ""
	for shown := len(all) - 1; shown > 0 && Columns(line+more) > width; shown-- {
		line, more = strings.Join(all[:shown], ", "), fmt.Sprintf(" and %d more", len(all)-shown)
	}
	return Cut(line, width-Columns(more)) + more
}
