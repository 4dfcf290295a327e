/* token.c: what all processes of a run know, and nobody else. */
#include <sodium.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_net.h"

#define TEXT_LEAST 16

_Static_assert(DPB_NET_TOKEN_BYTES == crypto_auth_hmacsha256_KEYBYTES &&
                       DPB_NET_TOKEN_BYTES == crypto_hash_sha256_BYTES,
               "a token is a key, and the hash of a text is a token");

dpb_status dpb_net_token_new(struct dpb_net_token *token)
{
    if (sodium_init() < 0) {
        dpb_error("cannot make a token: libsodium found no source of random numbers");
        return DPB_ERR_UNAVAILABLE;
    }
    randombytes_buf(token->bytes, sizeof(token->bytes));
    return DPB_OK;
}

dpb_status dpb_net_token_from_text(const char *text, struct dpb_net_token *token)
{
    const size_t length = strlen(text);
    size_t bytes;
    if (length < TEXT_LEAST) {
        dpb_error("the token has %zu characters, and is too easy to guess: at least %d are needed",
                  length, TEXT_LEAST);
        dpb_log_hint("openssl rand -hex 32 makes one; give the same to all processes");
        return DPB_ERR_USAGE;
    }
    if (length == DPB_NET_TOKEN_TEXT - 1 &&
        sodium_hex2bin(token->bytes, sizeof(token->bytes), text, length, NULL, &bytes, NULL) == 0 &&
        bytes == sizeof(token->bytes))
        return DPB_OK;
    crypto_hash_sha256(token->bytes, (const unsigned char *)text, length);
    return DPB_OK;
}

void dpb_net_token_text(const struct dpb_net_token *token, char text[DPB_NET_TOKEN_TEXT])
{
    sodium_bin2hex(text, DPB_NET_TOKEN_TEXT, token->bytes, sizeof(token->bytes));
}
