/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rings in which rows of HT land: rule P9 of docs/protocol.md. Checked are
 *   - that nobody reads a row but the one that it was told of (assert),
 *   - that all operations end, with rings of two chunks (no invalid end state).
 *
 * Two sources send an operation's chunks, of a row each, to one relay, where each of them has a ring. Their proxies send what
 * there is room for, in any order. Writes arrive in any order; so do words of what has been freed, with REPEATS one of them twice, and after
 * the operation that they are of. The relay has one warp, which goes through the chunks of all sources in turn; while it waits for one it frees what
 * has been read of that source. The ranks of its node, itself perhaps among them, pull the rows that they are told of: from each
 * source in order, and of any source that has one. Sums at home are the same with the home as the only reader.
 *
 * Words hold the number of their operation, so nothing is set back between operations, of which each takes the one slot again.
 * check.sh has the sizes and the broken variants.
 */
#ifndef CHUNKS
#define CHUNKS 4 /* of a source, in an operation */
#endif
#ifndef RING
#define RING 2
#endif
#ifndef BATCH
#define BATCH 1 /* a word to the sender reports so many chunks */
#endif
#ifndef OPS
#define OPS 1
#endif
#define SOURCES 2
#define MEMBERS 2

/* ---- The rules that the broken variants take away ---- */

#ifdef CREDIT_TOO_EARLY /* a chunk is free when those whom it is for have pulled it, not when they have been told */
#define waits_for_pulls false
#else
#define waits_for_pulls true
#endif
#ifdef TELLS_FIRST /* who pulls says so when it has */
#define tells_first true
#else
#define tells_first false
#endif
#ifdef OUT_OF_ORDER /* chunks are freed in order: a count says which */
#define next_is_read(s, q) (is_read(s, 0, q) + is_read(s, 1, q) + is_read(s, 2, q) > freed[s]) /* of three chunks */
#else
#define next_is_read(s, q) is_read(s, freed[s], q)
#endif
#ifdef WIDE_RUN /* the relay waits for no chunk before it has told of the one before */
#define ahead RING
#else
#define ahead 0
#endif
#ifdef SOURCES_IN_TURN /* no source waits for another */
#define any_source false
#else
#define any_source true
#endif
#ifdef FREES_AWAITED /* all chunks are freed, also those whose place nobody waits for: else a last word may never be due */
#define is_freed_at(c) ((c) + RING < CHUNKS)
#else
#define is_freed_at(c) true
#endif
/* And in what a word says: ADDS (one chunk more, instead of how many there are: cumulative), OLDER_WORD_WINS (the largest
   counts), NO_OPERATION (of which operation it is). */

/* ---- State. Words of the first operation are above 0. ---- */

#define tag(q, c) ((q) * (CHUNKS + 1) + (c))
#define at(s, c) ((s) * CHUNKS + (c))
#define place(s, c) ((s) * RING + (c) % RING)
#define of(s, m) ((s) * MEMBERS + (m))

byte landing[SOURCES * RING];                 /* tag of the chunk that lies there */
byte arrived[SOURCES * CHUNKS];               /* operation */
byte relayed[SOURCES * CHUNKS];               /* operation: the ranks have been told */
byte pulled[SOURCES * MEMBERS];               /* tag of the first chunk that has not been pulled */
byte seq[SOURCES], known[SOURCES];            /* of the source: its operation, and chunks that it knows to be free */
byte unsent[SOURCES];                         /* a bit for each chunk */
byte flying[SOURCES];                         /* likewise, on the network */
byte freed[SOURCES], reported[SOURCES];       /* of the relay: in its operation */
byte pending[SOURCES], posted[SOURCES];       /* of its proxy: the word that the source shall have, and has been sent */
int words[SOURCES];                           /* on the network, a bit for each tag less those of operation 0 */
bool repeated;                                /* a word has come twice */
byte ended[OPS + 1];                          /* readers, by operation */

/* The last chunk is for both members, and the first, but of four; the others of a source are for one. */
#define is_for(s, c, m) ((c) == CHUNKS - 1 || (CHUNKS != 4 && (c) == 0) || (m) == (s))
#define has_pulled(s, c, m, q) (!is_for(s, c, m) || pulled[of(s, m)] >= tag(q, (c) + 1))
#define is_read(s, c, q) \
  (relayed[at(s, c)] == (q) && (!waits_for_pulls || (has_pulled(s, c, 0, q) && has_pulled(s, c, 1, q))))

/* ---- The sender's proxy, and the network. A bit is chosen from several: any. ---- */

#define with_room(s) (unsent[s] & ((1 << (known[s] + RING)) - 1))
inline choose(bits, i) {
  i = 0;
  do
  :: ((bits) >> i) & 1 -> break
  :: ((bits) >> (i + 1)) != 0 -> i++
  od
}

proctype source(byte s) {
  byte q, c;
  for (q : 1 .. OPS) {
    d_step {
      seq[s] = q;
      known[s] = 0;
      unsent[s] = (1 << CHUNKS) - 1
    }
    do
    :: atomic {
         with_room(s) != 0 -> choose(with_room(s), c);
         unsent[s] = unsent[s] & ~(1 << c);
         flying[s] = flying[s] | (1 << c);
         c = 0
       }
    :: unsent[s] == 0 -> break
    od;
    ended[q] == MEMBERS + 1 /* P1: all have read what lies in the slot */
  }
}

proctype network(byte s) {
  byte i, f;
end:
  do
  :: atomic {
       flying[s] != 0 -> choose(flying[s], i);
       flying[s] = flying[s] & ~(1 << i);
       landing[place(s, i)] = tag(seq[s], i);
       arrived[at(s, i)] = seq[s];
       i = 0
     }
  :: d_step { /* of several values the proxy sends the latest */
       pending[s] != posted[s] -> posted[s] = pending[s];
       words[s] = words[s] | (1 << (pending[s] - tag(1, 0)))
     }
  :: atomic {
       words[s] != 0 -> choose(words[s], i);
#ifdef REPEATS /* one may come again */
       if
       :: words[s] = words[s] & ~(1 << i)
       :: !repeated -> repeated = true
       fi;
#else
       words[s] = words[s] & ~(1 << i);
#endif
       f = i % (CHUNKS + 1);
#ifndef NO_OPERATION
       if
       :: i / (CHUNKS + 1) + 1 != seq[s] -> f = 0
       :: else
       fi;
#endif
#ifdef ADDS
       if
       :: f != 0 && known[s] < CHUNKS -> known[s]++
       :: else
       fi;
#else
       if
#ifdef OLDER_WORD_WINS
       :: f != 0 -> known[s] = f
#else
       :: f > known[s] -> known[s] = f
#endif
       :: else
       fi;
#endif
       i = 0;
       f = 0
     }
  od
}

/* ---- The relay ---- */

#define may_free(s, q) (freed[s] < CHUNKS && is_freed_at(freed[s]) && next_is_read(s, q))

inline free_awaiting(s, c) {
  d_step {
    arrived[at(s, c)] != q && may_free(s, q) -> freed[s]++;
    if
    :: freed[s] - reported[s] >= BATCH -> reported[s] = freed[s]; pending[s] = tag(q, freed[s])
    :: else
    fi
  }
}

proctype relay() {
  byte q, c, s, awaited;
  for (q : 1 .. OPS) {
    d_step {
      freed[0] = 0;
      freed[1] = 0;
      reported[0] = 0;
      reported[1] = 0
    }
    for (c : 0 .. CHUNKS - 1) {
      for (s : 0 .. SOURCES - 1) {
        awaited = (c + ahead < CHUNKS -> c + ahead : CHUNKS - 1);
        do
        :: arrived[at(s, awaited)] == q -> break
        :: free_awaiting(s, awaited)
        od;
        assert(landing[place(s, c)] == tag(q, c));
        relayed[at(s, c)] = q
      }
    }
    ended[q]++
  }
}

/* ---- Ranks of its node ---- */

#define can_pull(s, n) (n < CHUNKS && relayed[at(s, n)] == q && (any_source || turn == s))
inline skip_others(s, n) {
  d_step {
    do
    :: n < CHUNKS && !is_for(s, n, m) -> n++
    :: else -> break
    od
  }
}
inline pull(s, n) {
  if
  :: tells_first -> pulled[of(s, m)] = tag(q, n + 1); assert(landing[place(s, n)] == tag(q, n))
  :: else -> assert(landing[place(s, n)] == tag(q, n)); pulled[of(s, m)] = tag(q, n + 1)
  fi;
  n++;
  skip_others(s, n);
  turn = 1 - s
}

proctype member(byte m) {
  byte q, n0, n1, turn;
  for (q : 1 .. OPS) {
    n0 = 0;
    n1 = 0;
    turn = m;
    skip_others(0, n0);
    skip_others(1, n1);
    do
    :: can_pull(0, n0) -> pull(0, n0)
    :: can_pull(1, n1) -> pull(1, n1)
    :: n0 == CHUNKS && n1 == CHUNKS -> break
    :: !any_source && turn == 0 && n0 == CHUNKS && n1 < CHUNKS -> turn = 1
    :: !any_source && turn == 1 && n1 == CHUNKS && n0 < CHUNKS -> turn = 0
    od;
    ended[q]++
  }
}

init {
  atomic {
    pending[0] = tag(1, 0);
    pending[1] = tag(1, 0);
    posted[0] = tag(1, 0);
    posted[1] = tag(1, 0);
    run source(0);
    run source(1);
    run network(0);
    run network(1);
    run relay();
    run member(0);
    run member(1)
  }
}
