package plan

import (
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

const (
	// oneWave is how long after the first machine others are still taken away for the same reason: the longest notice that
	// a cloud gives for a spot machine (EC2, two minutes).
	oneWave = 2 * time.Minute
	// againShare is how much less what has just been carried counts for in the order of leaving. Simulated (docs/benchmarks.md,
	// "Value saved"): where half of a second pool follows the first, 4.5 % of what is sent is sent again instead of 8.1 %, and
	// 96.7 % of the value is saved instead of 97.9 %; where less follows, both differ by less. 5 lets 4.9 % be sent again.
	againShare = 6
	// spareShare is how much less a spare counts for: it is wanted only if the node that has it too goes within moments, without a
	// word. Of Google's and EC2's spot machines some in a hundred are taken in an hour, which is one in some thousands in these
	// minutes.
	spareShare = 1024
)

// inTurn is what a block counts for when it is put in the order of leaving: what it is worth, and a part of that if it has
// landed here from others in the wave that now takes this node too, or is a spare. What is worth much leaves again all the same; what is
// worth little lets blocks go first that nobody has carried yet.
func inTurn(b inventory.Block, worth time.Duration) time.Duration {
	if b.Spare {
		return max(worth/spareShare, 1)
	}
	if m := b.Members[0]; m.Root == inventory.InVault && time.Since(time.Unix(0, m.ChangeTime)) < oneWave {
		return max(worth/againShare, 1)
	}
	return worth
}
