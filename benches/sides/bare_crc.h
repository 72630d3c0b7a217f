// CRC-32C by the processor's own instruction, for the pages of root://.

#ifndef BENCHES_BARE_CRC
#define BENCHES_BARE_CRC

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE4_2__)
#include <nmmintrin.h>
#define CRC_OF_WORD(crc, word) ((uint32_t)_mm_crc32_u64(crc, word))
#define CRC_OF_BYTE(crc, byte) _mm_crc32_u8(crc, byte)
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define CRC_OF_WORD(crc, word) __crc32cd(crc, word)
#define CRC_OF_BYTE(crc, byte) __crc32cb(crc, byte)
#else
#error "this processor has no instruction for CRC-32C"
#endif

// Pages whose checksums are computed side by side: an instruction takes three turns, but one can begin at each.
#define CRC_LANES 4

static inline uint64_t crc_word(const uint8_t *bytes)
{
   uint64_t word;
   memcpy(&word, bytes, sizeof word);
   return word;
}

static inline uint32_t crc32c(const uint8_t *bytes, size_t size)
{
   uint32_t crc = ~0u;
   for (; size >= 8; bytes += 8, size -= 8)
      crc = CRC_OF_WORD(crc, crc_word(bytes));
   for (; size > 0; ++bytes, --size)
      crc = CRC_OF_BYTE(crc, *bytes);
   return ~crc;
}

// The checksums of pages of equal size, a multiple of 8, each so many bytes behind the one before.
static inline void crc32c_of_lanes(const uint8_t *first, size_t size, size_t stride, uint32_t crcs[CRC_LANES])
{
   for (int lane = 0; lane < CRC_LANES; ++lane)
      crcs[lane] = ~0u;
   for (size_t at = 0; at < size; at += 8)
      for (int lane = 0; lane < CRC_LANES; ++lane)
         crcs[lane] = CRC_OF_WORD(crcs[lane], crc_word(first + lane * stride + at));
   for (int lane = 0; lane < CRC_LANES; ++lane)
      crcs[lane] = ~crcs[lane];
}

#endif
