// SPDX-License-Identifier: Apache-2.0
// Rings of chunks (ht_ring.hpp, P9 in docs/protocol.md): sources whose chunks land at one relay, in a ring each; the
// relay, of one warp, which tells the ranks of its node, frees and passes credits back; ranks that pull; a network that
// delivers in any order. Sums at home are the same with one reader, who is the relay.
//
//   CHUNKS  of a source in an operation        RING  chunks of a ring       TOLD  as RingShape::told_at_once
//   OPS     that use the slot, one after the other
//
// Each variant leaves out one rule:
//   CREDIT_TOO_EARLY   a chunk is freed when its rows have been told of, and not when they have been pulled
//   TELLS_FIRST        a rank says that it has pulled a row before it has
//   GAPS               freed are as many chunks as have been pulled, whichever they are
//   ADDS               a word is one chunk more, and not how many there are in all; the latest word is sent, as ever
//   OLDER_WORD_WINS    the word that comes last counts
//   NO_OPERATION       a word does not say of which operation it is
//   WIDE_RUN           the relay waits for as many chunks as a ring holds, and one more, before it tells of the first
//   SOURCES_IN_TURN    a rank pulls the rows of its sources in turn, and waits for each
//   FREES_AWAITED      chunks are freed only while others wait for their place: the last word may never be due

#ifndef CHUNKS
#define CHUNKS 4
#endif
#ifndef RING
#define RING 2
#endif
#ifndef TOLD
#define TOLD 1
#endif
#ifndef OPS
#define OPS 1
#endif
#ifndef SOURCES
#define SOURCES 2
#endif
#define MEMBERS 2
#define TAG(op, c) ((op) * 8 + (c))

byte to[SOURCES * CHUNKS];        // whom a chunk is for: a bit for each member
bool flight[SOURCES * CHUNKS];    // on the network
byte landing[SOURCES * RING];     // TAG(op, c + 1) of what lies there
byte arrived[SOURCES * CHUNKS];   // op
byte relayed[SOURCES * CHUNKS];   // op
byte pulled[SOURCES * MEMBERS];   // TAG(op, first chunk that the member has not pulled)
byte freed[SOURCES], told[SOURCES];
byte known[SOURCES];              // at the sender
byte now[SOURCES];                // the sender's operation
bool word[SOURCES * OPS * (CHUNKS + 1)];  // on the network: of an operation, so many
bool owed[SOURCES];
byte ended;                       // readers of this operation, of all sources

#define at(s, c) ((s) * CHUNKS + (c))
#define place(s, c) ((s) * RING + (c) % RING)
#define of(s, m) ((s) * MEMBERS + (m))
#define is_for(s, c, m) ((to[at(s, c)] >> (m)) & 1)
#define has_pulled(s, c, m, op) (!is_for(s, c, m) || pulled[of(s, m)] >= TAG(op, (c) + 1))
#ifdef CREDIT_TOO_EARLY
#define is_read(s, c, op) (relayed[at(s, c)] == op)
#else
#define is_read(s, c, op) (relayed[at(s, c)] == op && has_pulled(s, c, 0, op) && has_pulled(s, c, 1, op))
#endif

// ---- The sender's proxy, and the network

proctype Sender(byte s) {
  byte op, c, sent;
  for (op : 1 .. OPS) {
    atomic {
      now[s] = op;
      known[s] = 0;
      sent = 0;
    }
    do
    :: sent < CHUNKS && sent < known[s] + RING -> atomic {
        flight[at(s, sent)] = true;
        sent++
      }
    :: sent == CHUNKS && ended == op * (MEMBERS + 1) -> break  // consumed (P1): by all of the ranks
    od
  }
}

proctype Network(byte s) {
  byte c;
end:
  do
  :: atomic {
      c = 0;
      do
      :: flight[at(s, c)] -> break
      :: c + 1 < CHUNKS -> c++
      :: else -> goto word_of
      od;
      flight[at(s, c)] = false;
      landing[place(s, c)] = TAG(now[s], c + 1);
      arrived[at(s, c)] = now[s]
    }
    goto end;
word_of:
    atomic {
      c = 0;
      do
      :: word[s * OPS * (CHUNKS + 1) + c] -> break
      :: c + 1 < OPS * (CHUNKS + 1) -> c++
      :: else -> break
      od;
      if
      :: word[s * OPS * (CHUNKS + 1) + c] ->
        word[s * OPS * (CHUNKS + 1) + c] = false;
        if
#ifndef NO_OPERATION
        :: c / (CHUNKS + 1) + 1 != now[s] -> skip
#endif
#ifdef ADDS
        :: else -> known[s]++
#elif defined(OLDER_WORD_WINS)
        :: else -> known[s] = c % (CHUNKS + 1)
#else
        :: else ->
          if
          :: c % (CHUNKS + 1) > known[s] -> known[s] = c % (CHUNKS + 1)
          :: else -> skip
          fi
#endif
        fi
      :: else -> (false)
      fi
    }
  od
}
