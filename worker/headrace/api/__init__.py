"""HTTP inside the pod: what Kubernetes and Prometheus ask a worker.

It answers from a thread of its own, so that a handler that blocks the engine's loop is seen as slow and not as dead.
It changes nothing, and nothing that a client sends can cost the engine more than this thread.
"""
