/* greeting.h: what travels when two processes find out whether they know the same token.
 *
 *   guest                                     host
 *   hello: who speaks, role, a number   --->
 *                                       <---  challenge: who speaks, a number
 *   proof: HMAC over all of the above   --->
 *                                       <---  verdict: a word, and the host's own proof
 *
 * The guest proves first: who knocks at a port gets nothing that a token could be guessed from.
 * Both numbers are new in every greeting, so what was recorded proves nothing later; the two sides
 * prove under different names, so neither can be given back its own proof. */
#ifndef DPB_NET_GREETING_H
#define DPB_NET_GREETING_H

#include <stdbool.h>

#include "dpb_net.h"

#define DPB_NET_MAGIC_BYTES 8
#define DPB_NET_NONCE_BYTES 32
#define DPB_NET_PROOF_BYTES 32

/* All of bytes: the same on every machine, without padding. */
struct dpb_net_hello {
    char magic[DPB_NET_MAGIC_BYTES];
    char role[DPB_NET_ROLE_BYTES];
    unsigned char nonce[DPB_NET_NONCE_BYTES];
};

struct dpb_net_challenge {
    char magic[DPB_NET_MAGIC_BYTES];
    unsigned char nonce[DPB_NET_NONCE_BYTES];
};

struct dpb_net_proof {
    unsigned char hmac[DPB_NET_PROOF_BYTES];
};

struct dpb_net_verdict {
    char word[DPB_NET_MAGIC_BYTES];
    struct dpb_net_proof proof; /* zeros, unless welcome */
};

/* Make one's own part. DPB_ERR_UNAVAILABLE without a source of random numbers, logged. */
dpb_status dpb_net_hello_make(const char *role, struct dpb_net_hello *hello);
dpb_status dpb_net_challenge_make(struct dpb_net_challenge *challenge);

/* Is it what a dpbench says first, as far as `bytes` of it are there? Else `why` says what it is.
 */
bool dpb_net_magic_check(const char *magic, size_t bytes, char *why, size_t why_bytes);

enum dpb_net_side {
    DPB_NET_GUEST,
    DPB_NET_HOST
};

void dpb_net_prove(const struct dpb_net_token *token, enum dpb_net_side side,
                   const struct dpb_net_hello *hello, const struct dpb_net_challenge *challenge,
                   struct dpb_net_proof *proof);
bool dpb_net_proven(const struct dpb_net_token *token, enum dpb_net_side side,
                    const struct dpb_net_hello *hello, const struct dpb_net_challenge *challenge,
                    const struct dpb_net_proof *proof);

void dpb_net_verdict_make(bool welcome, struct dpb_net_verdict *verdict);
bool dpb_net_verdict_welcome(const struct dpb_net_verdict *verdict);

#endif
