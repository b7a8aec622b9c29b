"""The protocol of classic groups: members rejoin at each rebalance, and their leader assigns the partitions."""
