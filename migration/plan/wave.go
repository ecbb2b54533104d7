package plan

import (
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

const (
	// oneWave is how long after the first machine others are still taken away for the same reason: the longest notice that
	// a cloud gives for a spot machine (EC2, two minutes).
	oneWave = 2 * time.Minute
	// againShare is what the worth of a block is divided by that has just been carried here. Simulated
	// (docs/benchmarks/value.md): where half of a second pool follows the first, 4.5 % of what is sent is sent again instead of 8.1 %, and 96.7 % of the value is saved instead of 97.9 %; where less follows, both differ by less. 5 lets 4.9 % be sent again.
	againShare = 6
	// spareShare is what the worth of a spare is divided by: a spare is wanted only if the node that has the block too goes within
	// moments, without a word. Of Google's and EC2's spot machines some in a hundred are taken in an hour, which is one in some
	// thousands in these minutes.
	spareShare = 1024
)

// inTurn returns the worth by which a block is put in the order of leaving: its own, or a part of it if the block is a spare, or has
// landed here from another node in the wave that now takes this one too. A block of much worth leaves early again all the same; one of
// little worth lets blocks go first that nobody has carried yet.
func inTurn(b inventory.Block, worth time.Duration) time.Duration {
	if b.Spare {
		return max(worth/spareShare, 1)
	}
	if m := b.Members[0]; m.Root == inventory.InVault && time.Since(time.Unix(0, m.ChangeTime)) < oneWave {
		return max(worth/againShare, 1)
	}
	return worth
}
