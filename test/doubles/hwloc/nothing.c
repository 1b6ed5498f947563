/* SPDX-License-Identifier: Apache-2.0 */
/* A library with hwloc's name and none of its functions. */
int ucclep_nothing_here = 1;
