#include "text_vocabulary.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_dataset.h"
#include "dpb_log.h"
#include "draws.h"

/* Words are cut where white space begins, and at this length: no pair goes beyond a word. */
#define WORD_BYTES_MAX 32
/* Entries of a table are at most half its slots. */
#define SLOTS_FIRST 4096

/* ---- a table of pairs: key, a pair of tokens; value, what is known of it ---- */

struct pair {
    uint64_t key; /* first token << 32 | second; 0, two STARTs, marks a free slot */
    int64_t value;
};

struct pair_table {
    struct pair *slots;
    size_t slot_count; /* a power of two */
    size_t used;
};

static uint64_t pair_key(int32_t first, int32_t second)
{
    return (uint64_t)(uint32_t)first << 32 | (uint32_t)second;
}

/* The pair's slot, or the free one where it belongs. */
static struct pair *pair_slot(const struct pair_table *table, uint64_t key)
{
    size_t at = dpb_mix_u64(key) & (table->slot_count - 1);

    while (table->slots[at].key != 0 && table->slots[at].key != key)
        at = (at + 1) & (table->slot_count - 1);
    return &table->slots[at];
}

static bool pair_table_resize(struct pair_table *table, size_t slot_count)
{
    struct pair_table larger = {
            .slots = calloc(slot_count, sizeof(*larger.slots)),
            .slot_count = slot_count,
            .used = table->used,
    };

    if (!larger.slots)
        return false;
    for (size_t i = 0; i < table->slot_count; i++)
        if (table->slots[i].key != 0)
            *pair_slot(&larger, table->slots[i].key) = table->slots[i];
    free(table->slots);
    *table = larger;
    return true;
}

/* The pair's entry, made with value 0 when it is new; NULL when out of memory. */
static struct pair *pair_entry(struct pair_table *table, uint64_t key)
{
    struct pair *slot;

    if (2 * (table->used + 1) > table->slot_count &&
        !pair_table_resize(table, table->slot_count ? 2 * table->slot_count : SLOTS_FIRST))
        return NULL;
    slot = pair_slot(table, key);
    if (slot->key == 0) {
        slot->key = key;
        table->used++;
    }
    return slot;
}

/* ---- words ---- */

struct dpb_text_vocabulary {
    struct pair_table merges; /* value: the token that the pair becomes */
    int64_t size;
};

static bool is_space(char byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

/* Bytes of the word that begins at `text`: white space, if any, and what follows up to the next. */
static size_t word_length(const char *text, size_t count)
{
    size_t length = 1;

    while (length < count && length < WORD_BYTES_MAX && !is_space(text[length]))
        length++;
    return length;
}

/* A different word of the text, as the tokens it has been merged to so far. */
struct word {
    int32_t token[WORD_BYTES_MAX];
    int length;
    int64_t count; /* how often the text has it */
};

static void word_from_bytes(struct word *word, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        word->token[i] = DPB_TOKEN_WORDS + (uint8_t)text[i];
    word->length = (int)length;
}

/* Turn every such pair of the word, from the left, into one token. */
static void word_merge(struct word *word, uint64_t key, int32_t token)
{
    int to = 0;

    for (int from = 0; from < word->length; from++) {
        if (from + 1 < word->length && pair_key(word->token[from], word->token[from + 1]) == key) {
            word->token[to++] = token;
            from++;
        } else {
            word->token[to++] = word->token[from];
        }
    }
    word->length = to;
}

static bool word_has(const struct word *word, uint64_t key)
{
    for (int i = 0; i + 1 < word->length; i++)
        if (pair_key(word->token[i], word->token[i + 1]) == key)
            return true;
    return false;
}

/* ---- learning ---- */

struct learner {
    struct word *words;
    size_t word_count, word_room;
    size_t *slots; /* of words: index + 1 at its hash, 0 is free */
    size_t slot_count;
    struct pair_table pairs; /* value: how often the text has the pair */
};

static uint64_t word_hash(const char *text, size_t length)
{
    uint64_t hash = length;

    for (size_t i = 0; i < length; i++)
        hash = dpb_mix_u64(hash ^ (uint8_t)text[i]);
    return hash;
}

static bool word_is(const struct word *word, const char *text, size_t length)
{
    if (word->length != (int)length)
        return false;
    for (size_t i = 0; i < length; i++)
        if (word->token[i] != DPB_TOKEN_WORDS + (uint8_t)text[i])
            return false;
    return true;
}

static bool add_word(struct learner *learner, const char *text, size_t length)
{
    size_t at = word_hash(text, length) & (learner->slot_count - 1);

    while (learner->slots[at] != 0) {
        struct word *word = &learner->words[learner->slots[at] - 1];

        if (word_is(word, text, length)) {
            word->count++;
            return true;
        }
        at = (at + 1) & (learner->slot_count - 1);
    }
    if (learner->word_count == learner->word_room) {
        size_t room = learner->word_room ? 2 * learner->word_room : 1024;
        struct word *larger = realloc(learner->words, room * sizeof(*larger));

        if (!larger)
            return false;
        learner->words = larger;
        learner->word_room = room;
    }
    learner->slots[at] = learner->word_count + 1;
    learner->words[learner->word_count].count = 1;
    word_from_bytes(&learner->words[learner->word_count++], text, length);
    return true;
}

/* Add the word's pairs `times` times its count: 1 or -1. */
static bool count_pairs(struct learner *learner, const struct word *word, int64_t times)
{
    for (int i = 0; i + 1 < word->length; i++) {
        struct pair *pair =
                pair_entry(&learner->pairs, pair_key(word->token[i], word->token[i + 1]));

        if (!pair)
            return false;
        pair->value += times * word->count;
    }
    return true;
}

static bool count_words(struct learner *learner, const char *text, size_t count)
{
    size_t words = 0, length;

    for (size_t at = 0; at < count; at += word_length(text + at, count - at))
        words++;
    learner->slot_count = SLOTS_FIRST;
    while (learner->slot_count < 2 * words)
        learner->slot_count *= 2;
    learner->slots = calloc(learner->slot_count, sizeof(*learner->slots));
    if (!learner->slots)
        return false;
    for (size_t at = 0; at < count; at += length) {
        length = word_length(text + at, count - at);
        if (!add_word(learner, text + at, length))
            return false;
    }
    for (size_t i = 0; i < learner->word_count; i++)
        if (!count_pairs(learner, &learner->words[i], 1))
            return false;
    return true;
}

/* The most frequent pair; of equals the one with the smallest tokens, wherever it lies in the
 * table. 0 when none repeats. */
static uint64_t best_pair(const struct learner *learner)
{
    struct pair best = {.value = 1};

    for (size_t i = 0; i < learner->pairs.slot_count; i++) {
        const struct pair *pair = &learner->pairs.slots[i];

        if (pair->value > best.value || (pair->value == best.value && pair->key < best.key))
            best = *pair;
    }
    return best.key;
}

static bool merge_pair(struct learner *learner, uint64_t key, int32_t token)
{
    for (size_t i = 0; i < learner->word_count; i++) {
        struct word *word = &learner->words[i];

        if (!word_has(word, key))
            continue;
        if (!count_pairs(learner, word, -1))
            return false;
        word_merge(word, key, token);
        if (!count_pairs(learner, word, 1))
            return false;
    }
    return true;
}

static bool learn(struct learner *learner, const char *text, size_t count, int64_t limit,
                  dpb_text_vocabulary *vocabulary)
{
    uint64_t key;

    if (!count_words(learner, text, count))
        return false;
    while (vocabulary->size < limit && (key = best_pair(learner)) != 0) {
        struct pair *merge = pair_entry(&vocabulary->merges, key);

        if (!merge || !merge_pair(learner, key, (int32_t)vocabulary->size))
            return false;
        merge->value = vocabulary->size++;
    }
    return true;
}

dpb_status dpb_text_vocabulary_learn(const char *text, size_t count, int64_t limit,
                                     dpb_text_vocabulary **vocabulary)
{
    dpb_text_vocabulary *made = calloc(1, sizeof(*made));
    struct learner learner = {0};
    bool learnt = false;

    if (made && pair_table_resize(&made->merges, SLOTS_FIRST)) {
        made->size = DPB_TOKEN_WORDS + DPB_TEXT_BYTES;
        learnt = learn(&learner, text, count, limit, made);
    }
    free(learner.words);
    free(learner.slots);
    free(learner.pairs.slots);
    if (!learnt) {
        dpb_error("cannot learn a vocabulary: out of memory");
        dpb_text_vocabulary_free(made);
        return DPB_ERR_NO_MEMORY;
    }
    *vocabulary = made;
    return DPB_OK;
}

void dpb_text_vocabulary_free(dpb_text_vocabulary *vocabulary)
{
    if (!vocabulary)
        return;
    free(vocabulary->merges.slots);
    free(vocabulary);
}

int64_t dpb_text_vocabulary_size(const dpb_text_vocabulary *vocabulary)
{
    return vocabulary->size;
}

/* ---- use ---- */

/* The pair of the word that was learnt first, 0 when none was. */
static const struct pair *first_merge(const dpb_text_vocabulary *vocabulary,
                                      const struct word *word)
{
    const struct pair *first = NULL;

    for (int i = 0; i + 1 < word->length; i++) {
        const struct pair *merge =
                pair_slot(&vocabulary->merges, pair_key(word->token[i], word->token[i + 1]));

        if (merge->key != 0 && (!first || merge->value < first->value))
            first = merge;
    }
    return first;
}

int64_t dpb_text_encode(const dpb_text_vocabulary *vocabulary, const char *text, size_t count,
                        int32_t *tokens)
{
    int64_t written = 0;
    size_t length;

    for (size_t at = 0; at < count; at += length) {
        const struct pair *merge;
        struct word word;

        length = word_length(text + at, count - at);
        word_from_bytes(&word, text + at, length);
        while ((merge = first_merge(vocabulary, &word)))
            word_merge(&word, merge->key, (int32_t)merge->value);
        memcpy(tokens + written, word.token, (size_t)word.length * sizeof(*tokens));
        written += word.length;
    }
    return written;
}
