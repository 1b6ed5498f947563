/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a rank detaches another that only the network reaches: rules P12, points 6 to 10, of docs/protocol.md. Checked are
 *   - that a rank reads no rows but those of the operation that it is in, unless it has been told that it was masked (assert),
 *   - that both end all of their operations, or hear why not, and MaskClear brings them together (no invalid end state).
 *
 * The source puts the rows of each operation out where its NIC reads them, and pushes a command; its proxy posts a write; the
 * NIC reads the rows at any time after that, and they arrive at any time later, in any order, with the word that they have. The
 * reader may take any time, and the source may give up the wait for it then. With BREAKS the connection breaks once, at any
 * time; with BOTH the reader may give up the source, too.
 * A row is its operation's number, and MaskClear gives numbers that no operation has had.
 *
 * check.sh has the sizes and the broken variants.
 */
#ifndef OPS
#define OPS 3 /* operations before MaskClear */
#endif
#ifndef AFTER
#define AFTER 2 /* and after it */
#endif
#ifndef N
#define N 1 /* slots */
#endif
#define WRITES 3 /* posted at a time, at most */

/* ---- The rules that the broken variants take away ---- */

#ifdef HASTY /* what was put out is written over when the NIC reads no more of it */
#define may_write_over true
#else
#define may_write_over (detached)
#endif
#ifdef KEEPS_SENDING /* what waits for a rank that is detached is dropped, and what is pushed later */
#define drops false
#else
#define drops (detaching)
#endif
#ifdef MUTE /* a rank that is detached is told */
#define tells false
#else
#define tells true
#endif
/* And OLD_CONNECTIONS: MaskClear makes new connections. */

/* ---- State ---- */

byte out[N], landing[N];                                      /* rows, at the source and at the reader */
byte come[N];                                                 /* the reader's word of what has come */
byte posted[WRITES], flying[WRITES], row[WRITES];             /* writes before the NIC has read the row, and after */
byte consumed;                                                /* the source's word of what has been read */
byte source_seq, reader_seq;
bool detaching, detached;                                     /* the proxy has the command; it has told the kernel */
bool telling, evicted;                                        /* the word is under way; it has come */
bool broken;
byte met;
chan ring = [OPS + 2] of {byte}; /* numbers of operations; 0: part */

#define slot(q) ((q) % N)
#define is_free(w) (posted[w] == 0 && flying[w] == 0)
#define nothing_posted (is_free(0) && is_free(1) && is_free(2))

proctype source() {
  byte q, done, ops = OPS;
  bool masked;

begin:
  do
  :: done == ops -> break
  :: else ->
    q = source_seq + 1;
    if
    :: masked || consumed + N >= q
    :: !masked && consumed + N < q && (ops == OPS || broken) -> /* it is late, or its connection has broken */
      ring!0;
      masked = true;
      may_write_over || broken
    fi;
    out[slot(q)] = q;
    ring!q;
    source_seq = q;
    done++
  od;
  if
  :: ops == AFTER -> goto over
  :: else
  fi;
  met++;
  met == 4; /* the reader came, and has renewed the connection */
  atomic {
    ops = AFTER;
    done = 0;
    masked = false;
    goto begin
  }
over:
  skip
}

proctype reader() {
  byte q, done, w, ops = OPS;
  bool wrong;

begin:
  do
  :: done == ops -> break
  :: else ->
    q = reader_seq + 1;
    if
    :: come[slot(q)] == q
    :: evicted || (broken && come[slot(q)] != q) -> break
#ifdef BOTH
    :: ops == OPS && come[slot(q)] != q -> break
#endif
    fi;
    wrong = landing[slot(q)] != q;
    atomic {
      if
      :: evicted -> break
      :: else -> assert(!wrong)
      fi;
      reader_seq = q;
      done++
    }
    consumed = q /* a word that only grows, whenever it comes */
  od;
  if
  :: ops == AFTER -> goto over
  :: else
  fi;
  met == 1;
  atomic {
    source_seq = (source_seq > reader_seq -> source_seq : reader_seq) + N;
    reader_seq = source_seq;
    consumed = source_seq;
    do
    :: nempty(ring) -> ring?q
    :: empty(ring) -> break
    od;
#ifndef OLD_CONNECTIONS
    for (w : 0 .. WRITES - 1) {
      posted[w] = 0;
      flying[w] = 0
    }
    telling = false;
#endif
    detaching = false;
    detached = false;
    evicted = false;
    broken = false;
    ops = AFTER;
    done = 0;
    met = 4;
    goto begin
  }
over:
  skip
}

/* The source's proxy. A command waits in the ring until there is room on the NIC. */
proctype proxy() {
  byte q, w;

end:
  do
  :: atomic { ring?[0] -> ring?0; detaching = true }
  :: atomic { nempty(ring) && !ring?[0] && (drops || broken) -> ring?q }
  :: atomic {
       nempty(ring) && !ring?[0] && !drops && !broken && (is_free(0) || is_free(1) || is_free(2)) ->
       ring?q;
       w = (is_free(0) -> 0 : (is_free(1) -> 1 : 2));
       posted[w] = q
     }
  :: atomic { detaching && !detached && nothing_posted -> telling = tells && !broken; detached = true }
  od
}

/* The network, and the NICs at both ends. */
proctype network() {
  byte w;
#ifdef BREAKS
  bool has_broken;
#endif

end:
  do
  :: atomic { posted[0] != 0 -> flying[0] = posted[0]; row[0] = out[slot(posted[0])]; posted[0] = 0 }
  :: atomic { posted[1] != 0 -> flying[1] = posted[1]; row[1] = out[slot(posted[1])]; posted[1] = 0 }
  :: atomic { posted[2] != 0 -> flying[2] = posted[2]; row[2] = out[slot(posted[2])]; posted[2] = 0 }
  :: atomic { flying[0] != 0 -> landing[slot(flying[0])] = row[0]; come[slot(flying[0])] = flying[0]; flying[0] = 0 }
  :: atomic { flying[1] != 0 -> landing[slot(flying[1])] = row[1]; come[slot(flying[1])] = flying[1]; flying[1] = 0 }
  :: atomic { flying[2] != 0 -> landing[slot(flying[2])] = row[2]; come[slot(flying[2])] = flying[2]; flying[2] = 0 }
  :: atomic { telling -> telling = false; evicted = true }
#ifdef BREAKS
  :: atomic {
       !has_broken && met == 0 ->
       for (w : 0 .. WRITES - 1) {
         posted[w] = 0;
         flying[w] = 0
       }
       telling = false;
       has_broken = true;
       broken = true
     }
#endif
  od
}

init {
  atomic {
    run source();
    run reader();
    run proxy();
    run network()
  }
}
