/* text_vocabulary.h: byte-pair tokens learnt from a text (Sennrich et al., "Neural machine
 * translation of rare words with subword units", ACL 2016): the bytes, then, again and again, the
 * pair of tokens that is most frequent within words, until the vocabulary is full or no pair
 * repeats. Ids are DPB_TOKEN_WORDS and up: 256 bytes, then the pairs in the order of learning. */
#ifndef BENCH_TEXT_VOCABULARY_H
#define BENCH_TEXT_VOCABULARY_H

#include <stddef.h>
#include <stdint.h>

#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_TEXT_BYTES 256 /* tokens that are one byte */

typedef struct dpb_text_vocabulary dpb_text_vocabulary;

/* Learn from `count` bytes; ids stay below `limit`, which has room for the bytes at least. The same
 * text gives the same vocabulary. */
dpb_status dpb_text_vocabulary_learn(const char *text, size_t count, int64_t limit,
                                     dpb_text_vocabulary **vocabulary);
void dpb_text_vocabulary_free(dpb_text_vocabulary *vocabulary);

/* Ids are below this. */
int64_t dpb_text_vocabulary_size(const dpb_text_vocabulary *vocabulary);

/* Write the tokens of a text to `tokens`, which has room for `count` of them; returns how many. */
int64_t dpb_text_encode(const dpb_text_vocabulary *vocabulary, const char *text, size_t count,
                        int32_t *tokens);

#ifdef __cplusplus
}
#endif
#endif
