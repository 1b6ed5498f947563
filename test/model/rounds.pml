/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations of HT that run in rounds: rule P1 and "Blocks" of docs/protocol.md. Each rank has BLOCKS blocks, of which
 * RESIDENT at most run at a time, in order of index. A block sends and receives in the order S 0 .. S N-1, R 0, S N,
 * R 1, ..; or, with APART, one warp of it sends and another one receives. What is sent, and received of rounds that
 * peers wait for, is taken by turns. With RELAYS rows are relayed before they are received, by turns, too: whoever has
 * sent of a round then relays of it. Checked are
 *   - that a share of a round reads no rows but those of that round (assert), and consumed words never go back (assert),
 *   - that all operations end, however few blocks are resident (no invalid end state).
 *
 * The content of a row is the number of its round, and a share of each rank has one row for each rank. Numbers go on
 * from operation to operation. check.sh has the sizes and the broken variants.
 */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef N
#define N 2 /* slots */
#endif
#ifndef BLOCKS
#define BLOCKS 2
#endif
#ifndef RESIDENT
#define RESIDENT 1
#endif
#ifndef ROUNDS
#define ROUNDS 4 /* of the first operation */
#endif
#ifndef ROUNDS_2
#define ROUNDS_2 1 /* and of the second; 0: there is none */
#endif
#define rounds_of(op) ((op) == 0 -> ROUNDS : ROUNDS_2)
#define first_of(op) ((op) == 0 -> 1 : ROUNDS + 1) /* number of its first round */
#define OPS (ROUNDS_2 == 0 -> 1 : 2)
#ifdef APART
#define WARPS 2
#else
#define WARPS 1
#endif

/* ---- The rules that the broken variants take away ---- */

#ifdef NO_CREDIT /* P1: a round is written when all ranks have read what lay in its slot */
#define slot_free(n) true
#else
#define slot_free(n) all_consumed(n)
#endif
#ifdef ANY_ORDER /* rounds are published in order: that the one before has been is a part of each */
#define before(i) 0
#else
#define before(i) ((i) == 0 -> 0 : 1)
#endif
#ifdef FIRST_PART_PUBLISHES /* P1: a round is published when all of it has been read */
#define all_parts(i) 1
#else
#define all_parts(i) (BLOCKS + RELAY_PARTS + before(i))
#endif
#if defined(RELAYS) && !defined(RELAYS_UNCOUNTED) /* P1: and when all of it has been relayed */
#define RELAY_PARTS BLOCKS
#else
#define RELAY_PARTS 0
#endif
#ifdef RELAYS
#define relayed_row(n, source, share) rank[r].slot[(n) % N].relayed[(source) * BLOCKS + (share)]
#else
#define relayed_row(n, source, share) rank[r].slot[(n) % N].row[(source) * BLOCKS + (share)]
#endif
#ifdef OWN_SHARES /* Blocks: what others wait for is received by those that are resident */
#define awaited(i) false
#else
#define awaited(i) ((i) + N < rounds_of(op))
#endif
#ifdef SENDS_FIRST /* the order: R i comes before S i+N */
#define receives_at(i) ((i) - rounds_of(op))
#define receives_from rounds_of(op)
#define steps (2 * rounds_of(op))
#else
#define receives_at(i) ((i) - N)
#define receives_from N
#define steps (rounds_of(op) + N)
#endif

typedef Slot {
  byte row[RANKS * BLOCKS]; /* by source and share */
#ifdef RELAYS
  byte relayed[RANKS * BLOCKS]
#endif
};
typedef Rank {
  Slot slot[N];          /* where others write */
  byte consumed[RANKS];  /* as this rank knows them */
  byte sent, relayed, received; /* turns that its blocks have taken in this operation */
  byte parts[ROUNDS];    /* of a round that have been read */
  byte op;               /* that runs */
  byte ended[BLOCKS];    /* warps of a block */
  byte out               /* blocks that have ended */
};
Rank rank[RANKS];

#if RANKS == 1
#define all_consumed(n) (rank[r].consumed[0] + N >= (n))
#elif RANKS == 2
#define all_consumed(n) (rank[r].consumed[0] + N >= (n) && rank[r].consumed[1] + N >= (n))
#else
#define all_consumed(n) \
  (rank[r].consumed[0] + N >= (n) && rank[r].consumed[1] + N >= (n) && rank[r].consumed[2] + N >= (n))
#endif

inline publish(n) {
  d_step {
    for (p : 0 .. RANKS - 1) {
      assert(rank[p].consumed[r] <= (n));
      rank[p].consumed[r] = (n)
    }
    p = 0
  }
}

/* Share `b` of round i. */
inline send(i, share) {
  number = first_of(op) + (i);
  slot_free(number);
  d_step {
    for (p : 0 .. RANKS - 1) { rank[p].slot[number % N].row[r * BLOCKS + (share)] = number }
    p = 0
  }
}
inline receive(i, share) {
  number = first_of(op) + (i);
  p = 0;
  do
  :: p < RANKS ->
    relayed_row(number, p, share) == number;          /* its epoch is there */
    assert(relayed_row(number, p, share) == number);  /* and so are its rows, some time later */
    p++
  :: else -> break
  od;
  p = 0
}
inline relay(i, share) {
  number = first_of(op) + (i);
  p = 0;
  do
  :: p < RANKS ->
    rank[r].slot[number % N].row[p * BLOCKS + (share)] == number;
    relayed_row(number, p, share) = number;
    assert(rank[r].slot[number % N].row[p * BLOCKS + (share)] == number); /* it looks who else gets the row */
    p++
  :: else -> break
  od;
  p = 0
}
inline count(i) {
  part = (i);
  do
  :: part < rounds_of(op) && awaited(part) ->
    d_step {
      rank[r].parts[part]++;
      last = rank[r].parts[part] == all_parts(part)
    }
    if
    :: last ->
      publish(first_of(op) + part);
      part = (before(1) == 0 -> rounds_of(op) : part + 1)
    :: else -> break
    fi
  :: else -> break
  od;
  part = 0
}

proctype Warp(byte r, b; bool sends, receives) {
  byte op = 0, i, number, p, part, send_turn, relay_turn, receive_turn;
  bool last;
  do
  :: op < OPS ->
    atomic { /* resident, in order of index */
      rank[r].op == op && b < rank[r].out + RESIDENT;
      if
      :: sends ->
        send_turn = rank[r].sent;
        rank[r].sent++;
        relay_turn = rank[r].relayed;
        rank[r].relayed++
      :: else
      fi;
      if
      :: receives ->
        receive_turn = rank[r].received;
        rank[r].received++
      :: else
      fi
    }
    i = 0;
    do
    :: i < steps ->
      if
      :: receives && i >= receives_from && awaited(receives_at(i)) ->
        do
        :: receive_turn < (receives_at(i) + 1) * BLOCKS ->
          receive(receives_at(i), receive_turn % BLOCKS);
          count(receives_at(i));
          d_step {
            receive_turn = rank[r].received;
            rank[r].received++
          }
        :: else -> break
        od
      :: receives && i >= receives_from && !awaited(receives_at(i)) -> receive(receives_at(i), b)
      :: else
      fi;
      if
      :: sends && i < rounds_of(op) ->
        do
        :: send_turn < (i + 1) * BLOCKS ->
          send(i, send_turn % BLOCKS);
          d_step {
            send_turn = rank[r].sent;
            rank[r].sent++
          }
        :: else -> break
        od;
#ifdef RELAYS
        do
        :: relay_turn < (i + 1) * BLOCKS ->
          relay(i, relay_turn % BLOCKS);
          count(i);
          d_step {
            relay_turn = rank[r].relayed;
            rank[r].relayed++
          }
        :: else -> break
        od
#endif
      :: else
      fi;
      i++
    :: else -> break
    od;
    atomic { /* the last block out ends the operation */
      rank[r].ended[b]++;
      if
      :: rank[r].ended[b] == WARPS -> rank[r].out++
      :: else
      fi;
      if
      :: rank[r].out == BLOCKS ->
        publish(first_of(op) + rounds_of(op) - 1);
        d_step {
          for (p : 0 .. ROUNDS - 1) { rank[r].parts[p] = 0 }
          p = 0;
          rank[r].sent = 0;
          rank[r].relayed = 0;
          rank[r].received = 0;
          for (p : 0 .. BLOCKS - 1) { rank[r].ended[p] = 0 }
          p = 0;
          rank[r].out = 0;
          rank[r].op++
        }
      :: else
      fi
    };
    op++
  :: else -> break
  od
}

init {
  byte r, b;
  atomic {
    for (r : 0 .. RANKS - 1) {
      for (b : 0 .. BLOCKS - 1) {
#ifdef APART
        run Warp(r, b, true, false);
        run Warp(r, b, false, true)
#else
        run Warp(r, b, true, true)
#endif
      }
    }
  }
}
