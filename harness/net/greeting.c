/* greeting.c: the parts of a greeting, made and checked. */
#include "greeting.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "dpb_log.h"

static const char magic_word[DPB_NET_MAGIC_BYTES] = {'d', 'p', 'b', 'e', 'n', 'c', 'h', 1};
#define VERSION_BYTE (DPB_NET_MAGIC_BYTES - 1)

static const char welcome_word[DPB_NET_MAGIC_BYTES] = "welcome";
static const char refused_word[DPB_NET_MAGIC_BYTES] = "refused";

_Static_assert(DPB_NET_PROOF_BYTES == crypto_auth_hmacsha256_BYTES, "a proof is an HMAC");

static dpb_status random_nonce(unsigned char nonce[DPB_NET_NONCE_BYTES])
{
    if (sodium_init() < 0) {
        dpb_error("cannot greet: libsodium found no source of random numbers");
        return DPB_ERR_UNAVAILABLE;
    }
    randombytes_buf(nonce, DPB_NET_NONCE_BYTES);
    return DPB_OK;
}

dpb_status dpb_net_hello_make(const char *role, struct dpb_net_hello *hello)
{
    *hello = (struct dpb_net_hello){0};
    memcpy(hello->magic, magic_word, sizeof(magic_word));
    snprintf(hello->role, sizeof(hello->role), "%s", role);
    return random_nonce(hello->nonce);
}

dpb_status dpb_net_challenge_make(struct dpb_net_challenge *challenge)
{
    memcpy(challenge->magic, magic_word, sizeof(magic_word));
    return random_nonce(challenge->nonce);
}

bool dpb_net_magic_check(const char *magic, size_t bytes, char *why, size_t why_bytes)
{
    if (bytes > DPB_NET_MAGIC_BYTES)
        bytes = DPB_NET_MAGIC_BYTES;
    if (memcmp(magic, magic_word, bytes < VERSION_BYTE ? bytes : VERSION_BYTE) != 0)
        snprintf(why, why_bytes, "it is no dpbench: it begins with \"%.*s\"", (int)bytes, magic);
    else if (bytes > VERSION_BYTE && magic[VERSION_BYTE] != magic_word[VERSION_BYTE])
        snprintf(why, why_bytes, "it is a dpbench with another protocol (%d, not %d)",
                 magic[VERSION_BYTE], magic_word[VERSION_BYTE]);
    else
        return true;
    return false;
}

void dpb_net_prove(const struct dpb_net_token *token, enum dpb_net_side side,
                   const struct dpb_net_hello *hello, const struct dpb_net_challenge *challenge,
                   struct dpb_net_proof *proof)
{
    const unsigned char name = side == DPB_NET_GUEST ? 'g' : 'h';
    crypto_auth_hmacsha256_state state;
    crypto_auth_hmacsha256_init(&state, token->bytes, sizeof(token->bytes));
    crypto_auth_hmacsha256_update(&state, &name, 1);
    crypto_auth_hmacsha256_update(&state, (const unsigned char *)hello, sizeof(*hello));
    crypto_auth_hmacsha256_update(&state, (const unsigned char *)challenge, sizeof(*challenge));
    crypto_auth_hmacsha256_final(&state, proof->hmac);
    sodium_memzero(&state, sizeof(state));
}

bool dpb_net_proven(const struct dpb_net_token *token, enum dpb_net_side side,
                    const struct dpb_net_hello *hello, const struct dpb_net_challenge *challenge,
                    const struct dpb_net_proof *proof)
{
    struct dpb_net_proof expected;
    dpb_net_prove(token, side, hello, challenge, &expected);
    return sodium_memcmp(expected.hmac, proof->hmac, sizeof(expected.hmac)) == 0;
}

void dpb_net_verdict_make(bool welcome, struct dpb_net_verdict *verdict)
{
    *verdict = (struct dpb_net_verdict){0};
    memcpy(verdict->word, welcome ? welcome_word : refused_word, sizeof(verdict->word));
}

bool dpb_net_verdict_welcome(const struct dpb_net_verdict *verdict)
{
    return memcmp(verdict->word, welcome_word, sizeof(welcome_word)) == 0;
}
