//! What a process may touch: the plan of a jail and its launch.
