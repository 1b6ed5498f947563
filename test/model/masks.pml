/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How ranks go on without one that is late or dies, and come together again: rules P12 and P13 of docs/protocol.md, in a domain.
 * Checked are
 *   - that a rank reads no rows but those of the operation that it is in, unless it has been told that it was masked, and none
 *     of before MaskClear after it (assert),
 *   - that nobody loses rows of a rank that is neither late nor dead (assert),
 *   - that all who live end all of their operations, and MaskClear brings them together (no invalid end state).
 *
 * Operations of one kind, each of which has a header and rows from every rank for every rank. The rank LATE may stop anywhere
 * for any time, or with DEATH for ever, and misses deadlines then; nobody else does. Stores arrive at once and in order, as a
 * step each: what a late writer stores, it stores at any time later. A row is its operation's number and, which no kernel
 * sees, whether it is of before MaskClear or after it.
 *
 * check.sh has the sizes and the broken variants.
 */
#ifndef RANKS
#define RANKS 3
#endif
#ifndef OPS
#define OPS 2 /* operations before MaskClear */
#endif
#ifndef AFTER
#define AFTER 2 /* and after it */
#endif
#ifndef N
#define N 1 /* slots */
#endif
#define LATE (RANKS - 1)
#define ALL 255

/* ---- The rules that the broken variants take away ---- */

#ifdef NO_AGREEMENT /* P12: MaskClear goes on with one number on all ranks */
#define next(r) (rank[r].seq + N + 1)
#else
#define next(r) (largest + N + 1)
#endif
#ifdef DEAF /* P13: a late writer looks whether it was masked, and stops */
#define is_told(r) false
#else
#define is_told(r) (told_by_anybody(r))
#endif
#ifdef TOLD_LATER /* P13: a rank is told before anything that it may still read is written over */
#define told_now false
#else
#define told_now true
#endif
#ifdef IN_HASTE /* P12: who leaves for the sake of one waits for the rows of all others first */
#define leaves_early true
#else
#define leaves_early false
#endif
#ifdef RELIES_ON_ZEROS /* P13: who reads a header asks first whether its source is absent; else it trusts what the repair stored */
#define counts(p) (mine(p).header[slot(q)] != 0)
#define count_nothing(p, number) mine(p).header[slot(number)] = 0
#else
#define counts(p) (!is_absent(p) && has_header(p))
#define count_nothing(p, number) skip
#endif
/* And OLD_CONSUMED, P12: MaskClear sets the consumed words; ONE_LOOK, P13: a sender looks again whether it was masked when it has
 * waited for slots; BOTH_GO_ON, P13: a rank that has masked another looks whether that one has masked it meanwhile. */

/* ---- State ---- */

typedef Source { /* what a rank has of another one in its window */
  byte header[N], row[N]; /* numbers */
  bit after[N];           /* of the row: stored after MaskClear */
  byte consumed;
  bool evicted; /* P13: the other has masked this one */
}
typedef Mask {
  byte last; /* the last operation with something of the rank; ALL: it is active */
  bool lost, blank;
}
typedef Rank {
  byte seq;
  Source from[RANKS];
  Mask mask[RANKS];
  bool dead, gone; /* gone: it was told */
}
Rank rank[RANKS];
byte largest, came, ready, living = RANKS;

#define slot(q) ((q) % N)
#define is_masked(p) (rank[r].mask[p].last != ALL)
#define is_absent(p) (rank[r].mask[p].last < q)
#define mine(p) rank[r].from[p]
#define there(p) rank[p].from[r]
#define has_header(p) (mine(p).header[slot(q)] == q)
#define has_come(p) (has_header(p) && mine(p).row[slot(q)] == q)
#define told_by(r, p) (rank[r].from[p].evicted && rank[r].mask[p].last == ALL)
#define told_by_anybody(r) (told_by(r, 0) || told_by(r, 1) || told_by(r, RANKS - 1))
/* The deadline of a wait for p has passed. LATE waits for others in vain only for rows that they, who go on without it, have
 * written over, or for slots of theirs. */
#define is_late(p) (!after && (p == LATE || rank[p].gone))
#define is_over(p) (is_late(p) || (!after && r == LATE && mine(p).evicted))
#define has_no_slot(p) (is_late(p) || (!after && r == LATE && rank[p].mask[r].last != ALL))
#define leave_if(masked) if :: masked -> rank[r].gone = true; done = OPS; goto clear :: else fi

proctype member(byte r) {
  byte q, p, done;
  bool after, leave, wrong;

begin:
  do
  :: done == (after -> AFTER : OPS) -> break
  :: else ->
    atomic {
      leave_if(is_told(r));
      q = rank[r].seq + 1;
      leave = false;
      wrong = false
    }
    /* Slots are free. Who is given up here is masked below. */
    for (p : 0 .. RANKS - 1) {
      if
      :: p == r || is_masked(p)
      :: p != r && (q <= N || mine(p).consumed >= q - N)
      :: p != r && !is_masked(p) && has_no_slot(p) ->
        rank[r].mask[p].lost = true;
        leave = true;
        if
        :: told_now -> there(p).evicted = true
        :: else
        fi
      fi
    }
#ifndef ONE_LOOK
    atomic { leave_if(is_told(r)) }
#endif
    for (p : 0 .. RANKS - 1) {
      if
      :: p != r && !rank[p].dead ->
        there(p).header[slot(q)] = q;
#ifdef DEATH
        if
        :: r == LATE && !after -> rank[r].dead = true; living--; goto over
        :: true
        fi;
#endif
        d_step { there(p).row[slot(q)] = q; there(p).after[slot(q)] = after }
      :: else
      fi
    }
    /* All rows are here, or who they should come from is lost. */
    for (p : 0 .. RANKS - 1) {
      if
      :: p == r || is_masked(p) || rank[r].mask[p].lost
      :: p != r && has_come(p)
      :: p != r && !is_masked(p) && !has_come(p) && is_over(p) -> rank[r].mask[p].lost = true; leave = true
      :: p != r && leave && leaves_early -> rank[r].mask[p].lost = true
      fi
    }
    /* The repair: what came of those who are lost, and that they are masked. */
    for (p : 0 .. RANKS - 1) {
      if
      :: p != r && !is_masked(p) && rank[r].mask[p].lost ->
        atomic {
          leave_if(is_told(r));
          assert(p == LATE || r == LATE || rank[p].gone); /* nobody else is masked */
          rank[r].mask[p].blank = has_header(p) && !has_come(p);
          rank[r].mask[p].last = (has_header(p) -> q : q - 1);
          if
          :: is_absent(p) -> count_nothing(p, q)
          :: else
          fi
        }
        there(p).evicted = true;
#ifndef BOTH_GO_ON
        atomic { leave_if(mine(p).evicted) }
#endif
      :: else
      fi
    }
    /* Where rows lie follows from all headers. */
    for (p : 0 .. RANKS - 1) {
      if
      :: p == r
      :: else -> wrong = wrong || counts(p) != !is_absent(p)
      fi;
      if
      :: p == r || is_absent(p) || (is_masked(p) && rank[r].mask[p].blank)
      :: else -> wrong = wrong || mine(p).row[slot(q)] != q || mine(p).after[slot(q)] != after
      fi
    }
    atomic {
      leave_if(is_told(r));
      assert(!wrong);
      for (p : 0 .. RANKS - 1) {
        if
        :: p != r && is_masked(p) -> count_nothing(p, q + 1)
        :: else
        fi
      }
      rank[r].seq = q;
      done++
    }
    for (p : 0 .. RANKS - 1) {
      if
      :: p != r -> there(p).consumed = q
      :: else
      fi
    }
  od;
  if
  :: after -> goto over
  :: else
  fi;

  /* All who live come together, and begin anew. */
clear:
  atomic {
    largest = (rank[r].seq > largest -> rank[r].seq : largest);
    came++
  }
  atomic {
    came >= living;
    for (p : 0 .. RANKS - 1) {
      rank[r].mask[p].last = (rank[p].dead -> 0 : ALL);
      rank[r].mask[p].lost = false;
      rank[r].mask[p].blank = false;
      mine(p).evicted = false;
#ifndef OLD_CONSUMED
      mine(p).consumed = next(r)
#endif
    }
    rank[r].seq = next(r);
    ready++
  }
  atomic {
    ready >= living;
    after = true;
    done = 0;
    goto begin
  }
over:
  skip
}

init {
  byte r, p;
  atomic {
    for (r : 0 .. RANKS - 1) {
      for (p : 0 .. RANKS - 1) {
        rank[r].mask[p].last = ALL
      }
    }
    for (r : 0 .. RANKS - 1) {
      run member(r)
    }
    r = 0;
    p = 0
  }
}
