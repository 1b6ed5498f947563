/* SHA-256 of LibTomCrypt, modular cryptographic library -- Tom St Denis
 *
 * SPDX-License-Identifier: LicenseRef-Public-Domain OR WTFPL
 * Licence: LibTomCrypt's licence #1, "LibTomCrypt is public domain. As should all quality software be. Tom St Denis".
 * Origin:  LibTomCrypt 1.18.2 (https://www.libtom.net), src/hashes/sha2/sha256.c and HASH_PROCESS of
 *          src/headers/tomcrypt_hash.h, git commit 7e7eb695d581782f04b24dc444cbfde86af59853; the archive
 *          libtomcrypt_1.18.2.orig.tar.xz of Debian 12 has the SHA-256
 *          96ad4c3b8336050993c5bc2cf6c057484f2b0f9f763448151567fbab5e767b84.
 * Changes: one header for C and C++; the form LTC_SMALL_CODE; names with the prefix tomcrypt_sha256; uint32_t for
 *          ulong32; loads and stores as expressions; no argument checks, descriptor and self-test. test/unit has the
 *          vectors of NIST and of RFC 4231.
 *
 * The library is free for all purposes without any express guarantee it works.
 */
#ifndef TOMCRYPT_SHA256_H
#define TOMCRYPT_SHA256_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    uint64_t length;
    uint32_t state[8], curlen;
    unsigned char buf[64];
} tomcrypt_sha256_state;

/* the K array */
static const uint32_t tomcrypt_sha256_k[64] = {
    0x428a2f98U, 0x71374491U, 0xb5c0fbcfU, 0xe9b5dba5U, 0x3956c25bU,
    0x59f111f1U, 0x923f82a4U, 0xab1c5ed5U, 0xd807aa98U, 0x12835b01U,
    0x243185beU, 0x550c7dc3U, 0x72be5d74U, 0x80deb1feU, 0x9bdc06a7U,
    0xc19bf174U, 0xe49b69c1U, 0xefbe4786U, 0x0fc19dc6U, 0x240ca1ccU,
    0x2de92c6fU, 0x4a7484aaU, 0x5cb0a9dcU, 0x76f988daU, 0x983e5152U,
    0xa831c66dU, 0xb00327c8U, 0xbf597fc7U, 0xc6e00bf3U, 0xd5a79147U,
    0x06ca6351U, 0x14292967U, 0x27b70a85U, 0x2e1b2138U, 0x4d2c6dfcU,
    0x53380d13U, 0x650a7354U, 0x766a0abbU, 0x81c2c92eU, 0x92722c85U,
    0xa2bfe8a1U, 0xa81a664bU, 0xc24b8b70U, 0xc76c51a3U, 0xd192e819U,
    0xd6990624U, 0xf40e3585U, 0x106aa070U, 0x19a4c116U, 0x1e376c08U,
    0x2748774cU, 0x34b0bcb5U, 0x391c0cb3U, 0x4ed8aa4aU, 0x5b9cca4fU,
    0x682e6ff3U, 0x748f82eeU, 0x78a5636fU, 0x84c87814U, 0x8cc70208U,
    0x90befffaU, 0xa4506cebU, 0xbef9a3f7U, 0xc67178f2U
};

static inline uint32_t tomcrypt_sha256_ror(uint32_t x, unsigned n) { return (x >> n) | (x << (32 - n)); }

/* Various logical functions */
#define TOMCRYPT_CH(x,y,z)       (z ^ (x & (y ^ z)))
#define TOMCRYPT_MAJ(x,y,z)      (((x | y) & z) | (x & y))
#define TOMCRYPT_S(x, n)         tomcrypt_sha256_ror((x),(n))
#define TOMCRYPT_R(x, n)         ((x)>>(n))
#define TOMCRYPT_SIGMA0(x)       (TOMCRYPT_S(x, 2) ^ TOMCRYPT_S(x, 13) ^ TOMCRYPT_S(x, 22))
#define TOMCRYPT_SIGMA1(x)       (TOMCRYPT_S(x, 6) ^ TOMCRYPT_S(x, 11) ^ TOMCRYPT_S(x, 25))
#define TOMCRYPT_GAMMA0(x)       (TOMCRYPT_S(x, 7) ^ TOMCRYPT_S(x, 18) ^ TOMCRYPT_R(x, 3))
#define TOMCRYPT_GAMMA1(x)       (TOMCRYPT_S(x, 17) ^ TOMCRYPT_S(x, 19) ^ TOMCRYPT_R(x, 10))

/* compress 512-bits */
static inline void tomcrypt_sha256_compress(tomcrypt_sha256_state *md, const unsigned char *buf)
{
    uint32_t S[8], W[64], t0, t1, t;
    int i;

    /* copy state into S */
    for (i = 0; i < 8; i++) {
        S[i] = md->state[i];
    }

    /* copy the state into 512-bits into W[0..15] */
    for (i = 0; i < 16; i++) {
        W[i] = ((uint32_t)buf[4*i] << 24) | ((uint32_t)buf[4*i+1] << 16) | ((uint32_t)buf[4*i+2] << 8) | buf[4*i+3];
    }

    /* fill W[16..63] */
    for (i = 16; i < 64; i++) {
        W[i] = TOMCRYPT_GAMMA1(W[i - 2]) + W[i - 7] + TOMCRYPT_GAMMA0(W[i - 15]) + W[i - 16];
    }

    /* Compress */
    for (i = 0; i < 64; ++i) {
        t0 = S[7] + TOMCRYPT_SIGMA1(S[4]) + TOMCRYPT_CH(S[4], S[5], S[6]) + tomcrypt_sha256_k[i] + W[i];
        t1 = TOMCRYPT_SIGMA0(S[0]) + TOMCRYPT_MAJ(S[0], S[1], S[2]);
        S[3] += t0;
        S[7]  = t0 + t1;
        t = S[7]; S[7] = S[6]; S[6] = S[5]; S[5] = S[4];
        S[4] = S[3]; S[3] = S[2]; S[2] = S[1]; S[1] = S[0]; S[0] = t;
    }

    /* feedback */
    for (i = 0; i < 8; i++) {
        md->state[i] = md->state[i] + S[i];
    }
}

#undef TOMCRYPT_CH
#undef TOMCRYPT_MAJ
#undef TOMCRYPT_S
#undef TOMCRYPT_R
#undef TOMCRYPT_SIGMA0
#undef TOMCRYPT_SIGMA1
#undef TOMCRYPT_GAMMA0
#undef TOMCRYPT_GAMMA1

/* Initialize the hash state */
static inline void tomcrypt_sha256_init(tomcrypt_sha256_state *md)
{
    md->curlen = 0;
    md->length = 0;
    md->state[0] = 0x6A09E667U;
    md->state[1] = 0xBB67AE85U;
    md->state[2] = 0x3C6EF372U;
    md->state[3] = 0xA54FF53AU;
    md->state[4] = 0x510E527FU;
    md->state[5] = 0x9B05688CU;
    md->state[6] = 0x1F83D9ABU;
    md->state[7] = 0x5BE0CD19U;
}

/* Process a block of memory though the hash */
static inline void tomcrypt_sha256_process(tomcrypt_sha256_state *md, const unsigned char *in, size_t inlen)
{
    size_t n;
    while (inlen > 0) {
        if (md->curlen == 0 && inlen >= 64) {
            tomcrypt_sha256_compress(md, in);
            md->length += 64 * 8;
            in         += 64;
            inlen      -= 64;
        } else {
            n = inlen < (size_t)(64 - md->curlen) ? inlen : (size_t)(64 - md->curlen);
            memcpy(md->buf + md->curlen, in, n);
            md->curlen += (uint32_t)n;
            in         += n;
            inlen      -= n;
            if (md->curlen == 64) {
                tomcrypt_sha256_compress(md, md->buf);
                md->length += 8 * 64;
                md->curlen = 0;
            }
        }
    }
}

/* Terminate the hash to get the digest: 32 bytes */
static inline void tomcrypt_sha256_done(tomcrypt_sha256_state *md, unsigned char *out)
{
    int i;

    /* increase the length of the message */
    md->length += md->curlen * 8;

    /* append the '1' bit */
    md->buf[md->curlen++] = (unsigned char)0x80;

    /* if the length is currently above 56 bytes we append zeros
     * then compress.  Then we can fall back to padding zeros and length
     * encoding like normal.
     */
    if (md->curlen > 56) {
        while (md->curlen < 64) {
            md->buf[md->curlen++] = (unsigned char)0;
        }
        tomcrypt_sha256_compress(md, md->buf);
        md->curlen = 0;
    }

    /* pad upto 56 bytes of zeroes */
    while (md->curlen < 56) {
        md->buf[md->curlen++] = (unsigned char)0;
    }

    /* store length */
    for (i = 0; i < 8; i++) {
        md->buf[56 + i] = (unsigned char)(md->length >> (56 - 8 * i));
    }
    tomcrypt_sha256_compress(md, md->buf);

    /* copy output */
    for (i = 0; i < 32; i++) {
        out[i] = (unsigned char)(md->state[i / 4] >> (24 - 8 * (i % 4)));
    }
}

#endif
