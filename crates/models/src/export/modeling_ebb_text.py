"""A BERT whose classes are told from the mean of its tokens or from the first one, as Ebb trained it.

Opens with AutoModelForSequenceClassification.from_pretrained(FOLDER, trust_remote_code=True).
"""

from torch import nn
from transformers import BertConfig, BertModel, BertPreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput


class EbbBertForSequenceClassification(BertPreTrainedModel):
    config_class = BertConfig

    def __init__(self, config):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = BertModel(config, add_pooling_layer=False)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(self, input_ids=None, attention_mask=None, token_type_ids=None, labels=None, **kwargs):
        hidden = self.bert(input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids).last_hidden_state
        if getattr(self.config, "pooling", "mean") == "first":
            text = hidden[:, 0]
        elif attention_mask is None:
            text = hidden.mean(1)
        else:
            seen = attention_mask.unsqueeze(-1).to(hidden.dtype)
            text = (hidden * seen).sum(1) / seen.sum(1)
        logits = self.classifier(text)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)
