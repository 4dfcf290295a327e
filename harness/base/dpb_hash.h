/* dpb_hash.h: SHA-256, by which files and records are named as evidence. */
#ifndef DPB_HASH_H
#define DPB_HASH_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_SHA256_TEXT_BYTES 65

/* FIPS 180-4 SHA-256 of `count` bytes as 64 lower-case hex digits, terminated. */
void dpb_sha256_text(const void *bytes, size_t count, char text[DPB_SHA256_TEXT_BYTES]);

#ifdef __cplusplus
}
#endif
#endif
