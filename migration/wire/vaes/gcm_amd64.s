#include "textflag.h"

// The state of eight blocks is in Y0 to Y3, two blocks each. SI is the schedule: first the round keys, each twice, then the
// powers of the hash key, from the eighth to the first and zeros, then the halves of each power added up, for Karatsuba.
#define ROUNDKEY(n) (32*n)(SI)
#define POWERS 352
#define HALVES 608

DATA  reverse<>+0(SB)/8, $0x08090a0b0c0d0e0f
DATA  reverse<>+8(SB)/8, $0x0001020304050607
DATA  reverse<>+16(SB)/8, $0x08090a0b0c0d0e0f
DATA  reverse<>+24(SB)/8, $0x0001020304050607
GLOBL reverse<>(SB), (NOPTR+RODATA), $32

// The second block of two is one further.
DATA  second<>+0(SB)/8, $0
DATA  second<>+8(SB)/8, $0
DATA  second<>+16(SB)/8, $1
DATA  second<>+24(SB)/8, $0
GLOBL second<>(SB), (NOPTR+RODATA), $32

DATA  two<>+0(SB)/8, $2
DATA  two<>+8(SB)/8, $0
DATA  two<>+16(SB)/8, $2
DATA  two<>+24(SB)/8, $0
GLOBL two<>(SB), (NOPTR+RODATA), $32

// x^128 + x^7 + x^2 + x + 1, reflected.
DATA  poly<>+0(SB)/8, $0xc200000000000000
DATA  poly<>+8(SB)/8, $0
GLOBL poly<>(SB), (NOPTR+RODATA), $16

// COUNT makes the next eight counters of Y5, adds the first round key, and moves Y5 on.
#define COUNT \
	VMOVDQU ROUNDKEY(0), Y4 \
	VPSHUFB Y6, Y5, Y0      \
	VPADDD  Y13, Y5, Y5     \
	VPSHUFB Y6, Y5, Y1      \
	VPADDD  Y13, Y5, Y5     \
	VPSHUFB Y6, Y5, Y2      \
	VPADDD  Y13, Y5, Y5     \
	VPSHUFB Y6, Y5, Y3      \
	VPADDD  Y13, Y5, Y5     \
	VPXOR   Y4, Y0, Y0      \
	VPXOR   Y4, Y1, Y1      \
	VPXOR   Y4, Y2, Y2      \
	VPXOR   Y4, Y3, Y3

#define ROUND(n) \
	VMOVDQU ROUNDKEY(n), Y4 \
	VAESENC Y4, Y0, Y0      \
	VAESENC Y4, Y1, Y1      \
	VAESENC Y4, Y2, Y2      \
	VAESENC Y4, Y3, Y3

#define ROUNDS \
	ROUND(1) \
	ROUND(2) \
	ROUND(3) \
	ROUND(4) \
	ROUND(5) \
	ROUND(6) \
	ROUND(7) \
	ROUND(8) \
	ROUND(9)

// LAST ends with what is at src added to the key stream, and stores it.
#define LAST \
	VMOVDQU     ROUNDKEY(10), Y4 \
	VPXOR       (DX), Y4, Y11    \
	VPXOR       32(DX), Y4, Y15  \
	VAESENCLAST Y11, Y0, Y0      \
	VAESENCLAST Y15, Y1, Y1      \
	VPXOR       64(DX), Y4, Y11  \
	VPXOR       96(DX), Y4, Y15  \
	VAESENCLAST Y11, Y2, Y2      \
	VAESENCLAST Y15, Y3, Y3      \
	VMOVDQU     Y0, (DI)         \
	VMOVDQU     Y1, 32(DI)       \
	VMOVDQU     Y2, 64(DI)       \
	VMOVDQU     Y3, 96(DI)       \
	ADDQ        $128, DX         \
	ADDQ        $128, DI

// BLOCKS takes two blocks that are to be hashed, at bytes behind R10, and FIRST begins the sums of their products with the
// powers: Y7 of the lower halves, Y8 of the upper ones, Y9 of both added up (Karatsuba). NEXT adds to the sums. The block that
// the sum so far is added to comes last, so that the next batch does not wait for it from its beginning.
#define BLOCKS(at) \
	VMOVDQU at(R10), Y14 \
	VPSHUFB Y6, Y14, Y14

#define LOW(at, into) VPCLMULQDQ $0x00, (POWERS+at)(BX), Y14, into
#define HIGH(at, into) VPCLMULQDQ $0x11, (POWERS+at)(BX), Y14, into

#define BOTH(at, into) \
	VPSHUFD    $0x4e, Y14, Y15                   \
	VPXOR      Y14, Y15, Y15                     \
	VPCLMULQDQ $0x00, (HALVES+at)(BX), Y15, into

#define FIRST(at) \
	BLOCKS(at)   \
	LOW(at, Y7)  \
	HIGH(at, Y8) \
	BOTH(at, Y9)

#define NEXT(at) \
	BLOCKS(at)        \
	LOW(at, Y11)      \
	VPXOR Y11, Y7, Y7 \
	HIGH(at, Y15)     \
	VPXOR Y15, Y8, Y8 \
	BOTH(at, Y11)     \
	VPXOR Y11, Y9, Y9

#define WITHSUM(at) \
	BLOCKS(at)          \
	VPXOR Y10, Y14, Y14 \
	LOW(at, Y11)        \
	VPXOR Y11, Y7, Y7   \
	HIGH(at, Y15)       \
	VPXOR Y15, Y8, Y8   \
	BOTH(at, Y11)       \
	VPXOR Y11, Y9, Y9

// FOLD makes one product of the sums: X8 the upper half, X7 the lower one. REDUCE, twice, divides the lower half by the
// polynomial, 64 bits at a time.
#define FOLD \
	VPXOR        Y7, Y9, Y9  \
	VPXOR        Y8, Y9, Y9  \
	VPSLLDQ      $8, Y9, Y11 \
	VPSRLDQ      $8, Y9, Y9  \
	VPXOR        Y11, Y7, Y7 \
	VPXOR        Y9, Y8, Y8  \
	VEXTRACTI128 $1, Y7, X11 \
	VPXOR        X11, X7, X7 \
	VEXTRACTI128 $1, Y8, X15 \
	VPXOR        X15, X8, X8

#define REDUCE \
	VPCLMULQDQ $0x00, X12, X7, X11 \
	VPSHUFD    $0x4e, X7, X7       \
	VPXOR      X11, X7, X7

// HASH adds eight blocks to the sum, X10.
#define HASH \
	FIRST(32)   \
	NEXT(64)    \
	NEXT(96)    \
	WITHSUM(0)  \
	FOLD        \
	REDUCE      \
	REDUCE      \
	VPXOR X7, X8, X10

// STITCH is COUNT, ROUNDS, LAST and HASH. What either of the two kinds of work waits for, the other does not.
#define STITCH \
	COUNT       \
	FIRST(32)   \
	ROUND(1)    \
	ROUND(2)    \
	NEXT(64)    \
	ROUND(3)    \
	NEXT(96)    \
	ROUND(4)    \
	WITHSUM(0)  \
	ROUND(5)    \
	FOLD        \
	ROUND(6)    \
	REDUCE      \
	ROUND(7)    \
	REDUCE      \
	ROUND(8)    \
	VPXOR X7, X8, X10 \
	ROUND(9)    \
	LAST

#define BEGIN \
	MOVQ    k+0(FP), SI        \
	MOVQ    sum+8(FP), R8      \
	MOVQ    counter+16(FP), R9 \
	MOVQ    dst+24(FP), DI     \
	MOVQ    src+32(FP), DX     \
	MOVQ    n+40(FP), CX       \
	MOVQ    SI, BX             \
	VMOVDQU reverse<>(SB), Y6  \
	VMOVDQU two<>(SB), Y13     \
	VMOVDQU poly<>(SB), X12    \
	VMOVDQU (R8), X10          \
	VBROADCASTI128 (R9), Y5    \
	VPSHUFB Y6, Y5, Y5         \
	VPADDD  second<>(SB), Y5, Y5

// func sealBlocks(k *schedule, sum, counter *[16]byte, dst, src *byte, n int)
TEXT ·sealBlocks(SB), NOSPLIT, $0-48
	BEGIN
	MOVQ DI, R10
	COUNT
	ROUNDS
	LAST
	SUBQ $128, CX
	JZ   sealed

seal:
	STITCH
	ADDQ $128, R10
	SUBQ $128, CX
	JNZ  seal

sealed:
	HASH
	VMOVDQU X10, (R8)
	VZEROUPPER
	RET

// func openBlocks(k *schedule, sum, counter *[16]byte, dst, src *byte, n int)
TEXT ·openBlocks(SB), NOSPLIT, $0-48
	BEGIN
	MOVQ DX, R10

open:
	STITCH
	ADDQ $128, R10
	SUBQ $128, CX
	JNZ  open
	VMOVDQU X10, (R8)
	VZEROUPPER
	RET

// func hashBlocks(k *schedule, sum *[16]byte, src *[128]byte, n int)
TEXT ·hashBlocks(SB), NOSPLIT, $0-32
	MOVQ    k+0(FP), BX
	MOVQ    sum+8(FP), R8
	MOVQ    src+16(FP), R10
	MOVQ    n+24(FP), CX
	SHLQ    $4, CX
	ADDQ    $128, BX
	SUBQ    CX, BX
	VMOVDQU reverse<>(SB), Y6
	VMOVDQU poly<>(SB), X12
	VMOVDQU (R8), X10
	HASH
	VMOVDQU X10, (R8)
	VZEROUPPER
	RET

// func keyStream(k *schedule, counter *[16]byte, stream *[128]byte)
TEXT ·keyStream(SB), NOSPLIT, $0-24
	MOVQ    k+0(FP), SI
	MOVQ    counter+8(FP), R9
	MOVQ    stream+16(FP), DI
	VMOVDQU reverse<>(SB), Y6
	VMOVDQU two<>(SB), Y13
	VBROADCASTI128 (R9), Y5
	VPSHUFB Y6, Y5, Y5
	VPADDD  second<>(SB), Y5, Y5
	COUNT
	ROUNDS
	VMOVDQU     ROUNDKEY(10), Y4
	VAESENCLAST Y4, Y0, Y0
	VAESENCLAST Y4, Y1, Y1
	VAESENCLAST Y4, Y2, Y2
	VAESENCLAST Y4, Y3, Y3
	VMOVDQU     Y0, (DI)
	VMOVDQU     Y1, 32(DI)
	VMOVDQU     Y2, 64(DI)
	VMOVDQU     Y3, 96(DI)
	VZEROUPPER
	RET

// func cpuid(leaf, sub uint32) (a, b, c, d uint32)
TEXT ·cpuid(SB), NOSPLIT, $0-24
	MOVL leaf+0(FP), AX
	MOVL sub+4(FP), CX
	CPUID
	MOVL AX, a+8(FP)
	MOVL BX, b+12(FP)
	MOVL CX, c+16(FP)
	MOVL DX, d+20(FP)
	RET

// func subWord(w uint32) uint32
TEXT ·subWord(SB), NOSPLIT, $0-12
	MOVL w+0(FP), AX
	VMOVD AX, X0
	VPSHUFD $0, X0, X0
	VAESKEYGENASSIST $0, X0, X0
	VMOVD X0, AX
	MOVL AX, ret+8(FP)
	RET
