/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How ranks use the slots of each other's windows again and again over a network without order: rules P1 to P4, P8 and
 * P9 of docs/protocol.md. Checked are
 *   - that a rank reads no row but those of the operation that it is in, and no word goes beyond the truth (assert),
 *   - that every operation ends: something can always move (no invalid end state), and no run is endless (no cycle).
 *
 * The content of a row is the number of its operation. Left out: places, what a rank sends itself, faults. Numbers of 64
 * bits are bytes, which do not wrap as OPS is small; what the wire truncates is truncated.
 *
 * The network delivers in any order, may report an arrival again later, and may bring a word after newer ones. It loses
 * nothing, and brings nothing from LATE operations (values of a word) ago: a truncated number cannot be told from one
 * that is old enough. What a receiver drops changes nothing, so of reports that are repeated and of old words only those
 * are steps here that the receiver would take.
 *
 * check.sh has the sizes and the broken variants.
 */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef KINDS
#define KINDS 1 /* of operations, as dispatch and combine */
#endif
#ifndef OPS
#define OPS 5 /* operations of the first kind */
#endif
#ifndef OPS_2
#define OPS_2 1 /* and of the second, no more than OPS */
#endif
#define ops_of(k) ((k) == 0 -> OPS : OPS_2)
#ifndef N
#define N 2 /* slots, and operations of a kind in flight */
#endif
#ifndef CHUNKS
#define CHUNKS 1 /* most of one source in one operation; 0: the header stands for rows, too */
#endif
#ifndef BLOCKS
#define BLOCKS 1 /* of a kernel */
#endif
#ifndef WINDOW
#define WINDOW 2 /* messages to one peer that it has not returned; 0: no credits */
#endif
#ifndef EVERY
#define EVERY 1 /* of them the receiver returns so many at a time */
#endif
#define LATE (2 * N)
#define WORDS (4 * N) /* values of a word that the wire tells apart; the library's has 4096 */

/* ---- The rules that the broken variants take away ---- */

#ifdef SHARED_PARITY /* P1: each kind counts by itself */
#define slot_of(k, q) (number[k].at[q] % N)
#else
#define slot_of(k, q) ((q) % N)
#endif
#ifdef NO_CONSUMED_CHECK /* P1: writes only when the consumed word has reached seq - N */
#define is_free(peer) true
#else
#define is_free(peer) (q <= N || from[peer].to[r].word[k].known >= q - N)
#endif
#ifdef ONE_PHASE_TOO_MANY /* P2: at most N operations of a kind between their phases */
#define OPEN (N + 1)
#else
#define OPEN N
#endif
#ifdef FIRST_BLOCK_COUNTS /* P3: the block that ends last advances the sequence words */
#define COUNTS 1
#else
#define COUNTS BLOCKS
#endif
#ifdef SHORT_EPOCH /* P4: an epoch on the wire has at least 1 + ceil(log2 2N) bits */
#define EPOCHS (2 * N)
#else
#define EPOCHS (4 * N)
#endif
#ifdef OLDER_WORD_WINS /* P9: of the values that come the largest counts */
#define taken_for(value) (value)
#else
#define taken_for(value) (is_newer(value) -> word.known + ahead_of(value) : word.known)
#endif
#ifdef NO_CREDIT /* P9: no more messages than the receiver has entries for */
#define has_credit true
#else
#define has_credit (link.sent - from[d].to[s].word[CREDIT].known < WINDOW)
#endif
/* And CREDIT_TOO_EARLY, P1: `consumed` says that rows have been read, not that they have come. */

/* ---- State ---- */

/* A message is the header of an operation (part 0) or a chunk of its rows. Some sources have fewer rows, or none. */
#define PARTS (CHUNKS + 1)
#define parts_of(source, q) (1 + (source + (q)) % PARTS)

mtype = { send, complete }; /* the phases of an operation */

typedef KindOfRank {
  byte begun, ended;                  /* phases that were launched */
  byte seq;                           /* P3: the last operation that was sent */
  chan handles = [N + 1] of { byte }; /* P3: those that were sent and not completed */
  byte staging[N * PARTS];
  byte consumed; /* the last operation that was read, by which the arrival table goes */
}
typedef Rank {
  KindOfRank ops[KINDS];
  chan ahead = [2 * KINDS * (N + 1)] of { mtype, byte }; /* phases that a peer was the first to launch */
  mtype phase;                                            /* The kernel that runs: */
  byte kind;
  byte tickets; /* P3: of its blocks that have ended */
  bit launches; /* of kernels, modulo 2 */
  bool over;
}
Rank rank[RANKS];

typedef Slot {
  byte landing[PARTS];
  byte seq, bits; /* P8, the arrival table: which parts of which operation are here */
}
typedef Lane {
  Slot slot[N];
  byte flying[OPS + 2 * N + 1]; /* by operation: bits of the parts that are in the network */
}
typedef Word {
  byte told, known;
  bool coming; /* what was told last has not arrived yet */
}
#define CREDIT KINDS /* a word behind the `consumed` of each kind */
typedef Link {
  Lane lane[KINDS];
  Word word[KINDS + 1];
  chan waiting = [KINDS * (N + 1) * PARTS] of { byte, byte, byte }; /* P9: the list of the destination */
  byte sent, processed;
}
typedef Links {
  Link to[RANKS];
}
Links from[RANKS];

#ifdef SHARED_PARITY
typedef Numbers {
  byte at[OPS + 2 * N + 1];
}
Numbers number[KINDS]; /* of operations, counted over all kinds */
byte numbers;
#endif

inline publish(source, target, w, value) {
  from[source].to[target].word[w].told = value;
  from[source].to[target].word[w].coming = true
}

inline in_flight(source, target, kind, q, part) {
  from[source].to[target].lane[kind].flying[q] = from[source].to[target].lane[kind].flying[q] | (1 << part)
}

/* ---- Launches. P2: ranks issue the same phases in the same order. Who comes first takes any that is allowed. ---- */

#define mine rank[r]
#define may_send(k) (empty(mine.ahead) && mine.ops[k].begun < ops_of(k) && mine.ops[k].begun - mine.ops[k].ended < OPEN)
#define may_complete(k) (empty(mine.ahead) && mine.ops[k].ended < mine.ops[k].begun)
#define has_ended(k) (mine.ops[k].ended == ops_of(k))

inline issue(what, k) {
  mine.phase = what;
  mine.kind = k;
  for (p : 0 .. RANKS - 1) {
    if
    :: p != r -> rank[p].ahead!what, k
    :: else
    fi
  }
#ifdef SHARED_PARITY
  if
  :: what == send -> numbers++; number[k].at[mine.ops[k].begun + 1] = numbers
  :: else
  fi
#endif
}

inline launch() {
  if
  :: nempty(mine.ahead) -> mine.ahead?mine.phase, mine.kind
  :: may_send(0) -> issue(send, 0)
  :: may_complete(0) -> issue(complete, 0)
#if KINDS == 2
  :: may_send(1) -> issue(send, 1)
  :: may_complete(1) -> issue(complete, 1)
#endif
  :: empty(mine.ahead) && has_ended(0) && has_ended(KINDS - 1) -> mine.over = true
  fi;
  if
  :: mine.over
  :: !mine.over && mine.phase == send -> mine.ops[mine.kind].begun++
  :: !mine.over && mine.phase == complete -> mine.ops[mine.kind].ended++
  fi;
  mine.launches = 1 - mine.launches
}

/* ---- Kernels. Of an operation's parts each block has its own. ---- */

#define slot_from(source) from[source].to[r].lane[k].slot[slot_of(k, q)]
/* The progress word of arrivals.hpp says so: the header is here, and all chunks up to this one. */
#define up_to(part) ((2 << (part)) - 1)
#define arrived(source, part) (slot_from(source).seq == q && (slot_from(source).bits & up_to(part)) == up_to(part))
#define is_mine(part) ((part) % BLOCKS == b)

inline wait_until_free() {
  for (p : 0 .. RANKS - 1) {
    p == r || is_free(p)
  }
}
inline send_parts() {
  for (part : 0 .. parts_of(r, q) - 1) {
    if
    :: is_mine(part) -> mine.ops[k].staging[slot_of(k, q) * PARTS + part] = q
    :: else
    fi;
    for (p : 0 .. RANKS - 1) {
      if
      :: is_mine(part) && p != r ->
#if WINDOW
        from[r].to[p].waiting!k, q, part
#else
        in_flight(r, p, k, q, part)
#endif
      :: else
      fi
    }
  }
}
inline wait_for_parts() {
  for (p : 0 .. RANKS - 1) {
    if
    :: p != r -> arrived(p, 0)
    :: else
    fi;
    for (part : 1 .. parts_of(p, q) - 1) {
      if
      :: p != r && is_mine(part) -> arrived(p, part)
      :: else
      fi
    }
  }
}
inline read_parts() {
  for (p : 0 .. RANKS - 1) {
    for (part : 0 .. parts_of(p, q) - 1) {
      assert(p == r || !is_mine(part) || slot_from(p).landing[part] == q)
    }
  }
}
inline publish_consumed() {
  mine.ops[k].consumed = q; /* before any peer hears of it */
  for (p : 0 .. RANKS - 1) {
    if
    :: p != r -> publish(r, p, k, q)
    :: else
    fi
  }
}

/* P3. The last block out is also where the stream goes on. */
inline leave() {
  mine.tickets++;
  if
  :: mine.tickets == COUNTS && mine.phase == send -> mine.ops[k].seq = q; mine.ops[k].handles!q
  :: mine.tickets == COUNTS && mine.phase == complete -> mine.ops[k].handles?_; publish_consumed()
  :: else
  fi;
  if
  :: mine.tickets == BLOCKS -> mine.tickets = 0; launch()
  :: else
  fi;
  k = 0; q = 0; p = 0; part = 0
}

#define starts(what) (mine.launches != seen && !mine.over && mine.phase == what)
inline enter() {
  seen = mine.launches;
  k = mine.kind
}

proctype block(byte r; byte b) {
  byte k, q, p, part;
  bit seen;
  do
  :: atomic {
      starts(send);
      enter();
      q = mine.ops[k].seq + 1; /* P3: read at the entry */
      wait_until_free();
      send_parts();
      leave()
    }
  :: atomic {
      starts(complete);
      enter();
      mine.ops[k].handles?<q>;
      wait_for_parts();
#ifdef CREDIT_TOO_EARLY
      publish_consumed()
#endif
    }
    atomic { /* any time later */
      read_parts();
      leave()
    }
  :: mine.over -> break
  od
}

/* ---- Proxies and the network, from s to d ---- */

#define link from[s].to[d]

#if WINDOW
/* P9: of the sending proxy. */
proctype poster(byte s; byte d) {
  byte k, q, part;
end:
  do
  :: d_step {
      nempty(link.waiting) && has_credit;
      link.waiting?k, q, part;
      link.sent++;
      assert(link.sent - link.processed <= WINDOW); /* entries of the receiver */
      in_flight(s, d, k, q, part);
      k = 0; q = 0; part = 0
    }
  od
}
#endif

/* P8: of the receiving proxy, for messages of one kind and part. An epoch means the operation next to what is consumed. */
#define last rank[d].ops[k].consumed
#define meant(q) (last + ((q) % EPOCHS + EPOCHS - last % EPOCHS) % EPOCHS)
#define slot_meant(q) link.lane[k].slot[slot_of(k, meant(q))]
#define is_under_way(q) (meant(q) > last && meant(q) - last <= N)
#define is_here(q) (slot_meant(q).seq == meant(q) && (slot_meant(q).bits & (1 << part)))

inline report(q) {
  if
  :: is_under_way(q) && !is_here(q) ->
    if
    :: slot_meant(q).seq != meant(q) -> slot_meant(q).seq = meant(q); slot_meant(q).bits = 0
    :: else
    fi;
    slot_meant(q).bits = slot_meant(q).bits | (1 << part);
#if WINDOW
    link.processed++;
    if
    :: link.processed - from[d].to[s].word[CREDIT].told >= EVERY -> publish(d, s, CREDIT, link.processed)
    :: else
    fi
#endif
  :: else /* repeated or stale */
  fi
}
#define ARRIVES(q) \
  d_step { \
    link.lane[k].flying[q] & (1 << part); \
    link.lane[k].flying[q] = link.lane[k].flying[q] & ~(1 << part); \
    link.lane[k].slot[slot_of(k, q)].landing[part] = rank[s].ops[k].staging[slot_of(k, q) * PARTS + part]; \
    report(q) \
  }
#define IS_REPEATED(q, age) \
  d_step { \
    age <= LATE && last >= age && part < parts_of(s, q) && is_under_way(q) && !is_here(q); \
    report(q) \
  }
proctype carrier(byte s; byte d; byte k; byte part) {
end:
  do
  :: ARRIVES(last + 1)
  :: ARRIVES(last + 2)
#if N == 2
  :: ARRIVES(last + 3) /* those that no peer sends who keeps to P1 */
  :: ARRIVES(last + 4)
#endif
  :: IS_REPEATED(last, 1)
  :: IS_REPEATED(last - 1, 2)
  :: IS_REPEATED(last - 2, 3)
  :: IS_REPEATED(last - 3, 4)
  od
}

/* P9: a word, of which the receiver knows a value that only grows, and never beyond what was told. */
#define word link.word[w]
#define ahead_of(value) (((value) % WORDS + WORDS - word.known % WORDS) % WORDS)
#define is_newer(value) (ahead_of(value) > 0 && ahead_of(value) < WORDS / 2)
inline move(value) {
  assert(word.known <= taken_for(value) && taken_for(value) <= word.told);
  word.known = taken_for(value)
}
#define COMES_LATE(age) d_step { age <= LATE && word.told > age && taken_for(word.told - age) != word.known; move(word.told - age) }

proctype messenger(byte s; byte d; byte w) {
end:
  do
  :: d_step { word.coming; word.coming = false; move(word.told) }
  :: COMES_LATE(1)
  :: COMES_LATE(2)
  :: COMES_LATE(3)
  :: COMES_LATE(4)
  od
}

init {
  byte r, p, d, i, part;
  atomic {
    for (r : 0 .. RANKS - 1) {
      launch();
      for (i : 0 .. BLOCKS - 1) {
        run block(r, i)
      }
      for (d : 0 .. RANKS - 1) {
        if
        :: d != r ->
          for (i : 0 .. KINDS - 1) {
            run messenger(r, d, i);
            for (part : 0 .. PARTS - 1) {
              run carrier(r, d, i, part)
            }
          };
#if WINDOW
          run poster(r, d);
          run messenger(r, d, CREDIT)
#endif
        :: else
        fi
      }
    }
    r = 0; p = 0; d = 0; i = 0; part = 0
  }
}
